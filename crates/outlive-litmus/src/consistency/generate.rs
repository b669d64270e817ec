//! All tests that are generated from the model.

use super::levels::Disagreement;
use super::shared::Shared;
use super::special::Special;
use super::to_test::{object_name, test_of, transaction_name};
use super::word::{Edge, Word};
use crate::test::{Family, Test};

/// The maximum number of transactions of a generated test.
pub const MOST_TRANSACTIONS: usize = 4;

/// The generated tests with a given number of transactions.
#[derive(Clone, Debug, Default)]
pub struct Generated {
    /// One test for each word.
    pub words: Vec<Test>,
    /// The tests whose dependencies share objects.
    pub shared: Vec<Test>,
    /// The number of cycles with shared objects that have no test: their values do not show their
    /// version order.
    pub hidden: usize,
    /// Dirty reads, counts and absences.
    pub special: Vec<Test>,
}

impl Generated {
    /// Generates the tests with `transactions` transactions.
    pub fn with(transactions: usize) -> Result<Self, Disagreement> {
        let mut generated = Self::default();
        for word in Word::all(transactions) {
            let on: Vec<usize> = (0..word.dependencies()).collect();
            let name = format!("cycle-{word}");
            let family = family_of(&word);
            let test = test_of(&word.history(), name, explain(&word, &on), family)?;
            generated.words.extend(test);
        }
        for Shared { word, on, history } in Shared::all(transactions) {
            let objects: String = on.iter().map(|&it| object_name(it)).collect();
            let name = format!("cycle-{word}-on-{objects}");
            let test = test_of(&history, name, explain(&word, &on), family_of(&word))?;
            generated.hidden += usize::from(test.is_none());
            generated.shared.extend(test);
        }
        let special = Special::all().into_iter();
        for it in special.filter(|it| it.history.transactions.len() == transactions) {
            let (name, about) = (it.name.to_string(), it.about.to_string());
            let test = test_of(&it.history, name, about, it.family)?;
            generated.special.extend(test);
        }
        Ok(generated)
    }

    /// Returns the tests.
    pub fn tests(&self) -> impl Iterator<Item = &Test> {
        [&self.words, &self.shared, &self.special]
            .into_iter()
            .flatten()
    }
}

/// Returns the family of the cycles of a word.
fn family_of(word: &Word) -> Family {
    let has = |edge| word.edges().contains(&edge);
    if has(Edge::RealTime) {
        Family::RealTime
    } else if has(Edge::ReadWrite) {
        Family::ReadWrite
    } else if has(Edge::WriteRead) {
        Family::WriteRead
    } else {
        Family::DirectWrite
    }
}

/// Returns the sentence that explains the test of a word.
fn explain(word: &Word, on: &[usize]) -> String {
    let all = word.edges().len();
    let mut objects = on.iter().map(|&it| object_name(it));
    let part = |(from, edge): (usize, &Edge)| {
        let (a, b) = (transaction_name(from), transaction_name((from + 1) % all));
        let mut object = || objects.next().expect("an object for each dependency");
        match edge {
            Edge::WriteWrite => format!("{b} overwrites {} of {a}", object()),
            Edge::WriteRead => format!("{b} reads {} of {a}", object()),
            Edge::ReadWrite => format!("{a} reads {} before {b} writes it", object()),
            Edge::RealTime => format!("{a} is acknowledged before {b} begins"),
        }
    };
    let parts: Vec<String> = word.edges().iter().enumerate().map(part).collect();
    format!("{}.", parts.join(", "))
}
