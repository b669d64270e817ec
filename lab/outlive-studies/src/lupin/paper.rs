//! The paper's numbers for the six programs: LUPIN's Tables 3 and 4, and section 5.
//!
//! It contradicts itself in two places: histogram and dedup without crashes take 0.25 s and 0.73 s
//! in Table 3, and 0.23 s and 0.74 s in Table 4. And "3.6% slower [...] using the geometric mean"
//! holds for the four programs on MapReduce in Table 3; for all six it is 10.4%.

use crate::row::Row;

/// A line of Table 3: seconds, and the speed relative to one thread.
struct Times {
    phoenix: Option<f64>,
    metis: Option<f64>,
    cxl_shm: Option<f64>,
    /// In one virtual machine with 32 processors.
    one: [f64; 2],
    /// In 16 virtual machines with 2 processors each.
    many: [f64; 2],
}

impl Times {
    const fn on_map_reduce(
        [phoenix, metis, cxl_shm]: [f64; 3],
        one: [f64; 2],
        many: [f64; 2],
    ) -> Self {
        Self {
            phoenix: Some(phoenix),
            metis: Some(metis),
            cxl_shm: Some(cxl_shm),
            one,
            many,
        }
    }

    const fn of_parsec(one: [f64; 2], many: [f64; 2]) -> Self {
        Self {
            phoenix: None,
            metis: None,
            cxl_shm: None,
            one,
            many,
        }
    }
}

/// The lines of the programs, in the order of [`PROGRAMS`](super::PROGRAMS).
const TABLE_3: [Times; 6] = [
    Times::on_map_reduce([9.54, 11.09, 2.46], [0.67, 28.5], [0.68, 28.0]),
    Times::on_map_reduce([3.99, 3.83, 4.27], [3.78, 29.4], [3.86, 28.8]),
    Times::on_map_reduce([5.23, 1.41, 6.48], [5.13, 32.4], [5.24, 31.7]),
    Times::on_map_reduce([0.25, 0.09, 0.19], [0.23, 13.2], [0.25, 12.2]),
    Times::of_parsec([2.24, 27.9], [2.36, 26.5]),
    Times::of_parsec([0.49, 23.8], [0.73, 15.9]),
];

/// The geometric mean of the times on 16 virtual machines relative to one.
pub const SLOWER: f64 = 1.036;

/// Table 4: seconds without crashes, and the slowdown in percent with one crash and with eight.
pub struct Slowdown {
    pub seconds: f64,
    one: f64,
    eight: f64,
}

impl Slowdown {
    const fn of(seconds: f64, one: f64, eight: f64) -> Self {
        Self {
            seconds,
            one,
            eight,
        }
    }

    /// Returns the slowdown in percent with the given number of crashes, if the paper gives it.
    pub fn with(&self, crashes: u32) -> Option<f64> {
        match crashes {
            1 => Some(self.one),
            8 => Some(self.eight),
            _ => None,
        }
    }
}

/// The lines of the programs, in the same order.
pub const TABLE_4: [Slowdown; 6] = [
    Slowdown::of(0.68, 0.0, 2.9),
    Slowdown::of(3.86, 0.0, 2.5),
    Slowdown::of(5.24, 0.0, 4.6),
    Slowdown::of(0.23, 0.0, 7.8),
    Slowdown::of(2.36, 0.0, 0.0),
    Slowdown::of(0.74, 3.4, 6.3),
];

/// Returns the rows of Table 3, system by system.
pub fn table_3() -> Vec<Row> {
    type Column = (&'static str, &'static str, fn(&Times) -> Option<f64>);
    let columns: [Column; 7] = [
        ("LUPIN, 16 hosts of 2 processors", "s", |it| {
            Some(it.many[0])
        }),
        ("LUPIN-1, 1 host of 32", "s", |it| Some(it.one[0])),
        ("LUPIN, 16 hosts, beside one thread", "times", |it| {
            Some(it.many[1])
        }),
        ("LUPIN-1, beside one thread", "times", |it| Some(it.one[1])),
        ("Phoenix, 1 host of 32", "s", |it| it.phoenix),
        ("Metis, 1 host of 32", "s", |it| it.metis),
        ("CXL-SHM, 1 host of 32", "s", |it| it.cxl_shm),
    ];
    let mut rows = Vec::new();
    for (system, unit, of) in columns {
        let case = format!("the paper's Table 3, on its machine: {system}");
        for ((name, _), times) in super::PROGRAMS.iter().zip(&TABLE_3) {
            let said = of(times);
            rows.extend(said.map(|said| Row::paper_alone(&case, *name, unit, said)));
        }
    }
    rows
}

/// Returns the numbers of both tables for runs without crashes.
pub fn without_crashes() -> Vec<Row> {
    let case = |table| format!("the paper's Table {table}, on its machine: no crash");
    let seconds = |table, at: usize, seconds| {
        Row::paper_alone(case(table), super::PROGRAMS[at].0, "s", seconds)
    };
    let table_4 = TABLE_4.iter().enumerate();
    let mut rows: Vec<Row> = table_4.map(|(at, it)| seconds(4, at, it.seconds)).collect();
    let table_3 = TABLE_3.iter().zip(&TABLE_4).enumerate();
    let differ = table_3.filter(|(_, (three, four))| three.many[0] != four.seconds);
    rows.extend(differ.map(|(at, (three, _))| seconds(3, at, three.many[0])));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lupin::MAP_REDUCE;

    /// Returns the geometric mean of the times on 16 virtual machines relative to one.
    fn slower(programs: &[Times]) -> f64 {
        let logarithms = programs.iter().map(|it| (it.many[0] / it.one[0]).ln());
        (logarithms.sum::<f64>() / programs.len() as f64).exp()
    }

    #[test]
    fn the_papers_mean_is_that_of_its_table() {
        assert!((slower(&TABLE_3[..MAP_REDUCE]) - SLOWER).abs() < 5e-4);
        assert!((slower(&TABLE_3) - 1.104).abs() < 5e-4);
    }

    #[test]
    fn both_numbers_are_there_where_the_paper_contradicts_itself() {
        assert_eq!(table_3().len(), 4 * 6 + 3 * MAP_REDUCE);
        let rows = without_crashes();
        let twice: Vec<_> = rows[6..]
            .iter()
            .map(|row| (row.metric.as_str(), row.paper))
            .collect();
        let expected = [("histogram", Some(0.25)), ("dedup", Some(0.73))];
        assert_eq!(twice, expected);
    }
}
