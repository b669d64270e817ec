//! A reader of the EDN that histories use: maps, vectors, keywords, integers and `nil`.

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edn {
    Nil,
    Integer(i64),
    Keyword(String),
    Vector(Vec<Edn>),
    Map(Vec<(Edn, Edn)>),
}

impl Edn {
    /// Returns the one value in a text.
    pub fn read(text: &str) -> Self {
        let mut rest = text;
        let value = value(&mut rest).unwrap_or_else(|| panic!("no value in {text:?}"));
        assert_eq!(rest.trim(), "", "after the value in {text:?}");
        value
    }

    /// Returns the value of a map with this key.
    pub fn get(&self, key: &str) -> &Self {
        let Self::Map(entries) = self else {
            panic!("not a map: {self:?}");
        };
        let key = Self::Keyword(key.into());
        let mut with_key = entries.iter().filter(|it| it.0 == key);
        let found = with_key
            .next()
            .unwrap_or_else(|| panic!("{self:?} has no {key:?}"));
        assert!(with_key.next().is_none(), "{self:?} has {key:?} twice");
        &found.1
    }

    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(it) => *it,
            other => panic!("not an integer: {other:?}"),
        }
    }

    pub fn keyword(&self) -> &str {
        match self {
            Self::Keyword(it) => it,
            other => panic!("not a keyword: {other:?}"),
        }
    }

    pub fn vector(&self) -> &[Self] {
        match self {
            Self::Vector(all) => all,
            other => panic!("not a vector: {other:?}"),
        }
    }
}

/// Takes a value from the beginning of a text; `None` at its end or before a bracket that closes.
fn value(text: &mut &str) -> Option<Edn> {
    // A comma is white space.
    *text = text.trim_start_matches([' ', ',', '\n']);
    let first = text.chars().next()?;
    match first {
        '}' | ']' => None,
        '[' => Some(Edn::Vector(values(text, ']'))),
        '{' => {
            let all = values(text, '}');
            let (pairs, rest) = all.as_chunks::<2>();
            assert!(rest.is_empty(), "a key without a value: {rest:?}");
            let pairs = pairs.iter().cloned().map(|[key, value]| (key, value));
            Some(Edn::Map(pairs.collect()))
        }
        _ => {
            let end = text.find([' ', ',', '\n', ']', '}']).unwrap_or(text.len());
            let (word, rest) = text.split_at(end);
            *text = rest;
            Some(match word.strip_prefix(':') {
                Some(name) => Edn::Keyword(name.into()),
                None if word == "nil" => Edn::Nil,
                None => Edn::Integer(word.parse().unwrap_or_else(|_| panic!("{word:?}"))),
            })
        }
    }
}

/// Takes the values between two brackets.
fn values(text: &mut &str, close: char) -> Vec<Edn> {
    *text = &text[1..];
    let mut all = Vec::new();
    while let Some(value) = value(text) {
        all.push(value);
    }
    let rest = text.strip_prefix(close);
    *text = rest.unwrap_or_else(|| panic!("{close:?} is missing before {text:?}"));
    all
}
