//! The programs that hosts know, by the numbers that are stored in the pod.

use crate::blackscholes::Pricing;
use crate::dedup::Archiving;
use crate::histogram::Counting;
use crate::kmeans::Clustering;
use crate::mapreduce::OnTasks;
use crate::matmul::Multiplication;
use crate::pagerank::Ranking;
use crate::wordcount::WordCount;
use outlive_run::host::Work;
use outlive_run::on_tasks::{PoolOf, PoolWork, TaskProgram};

/// All of them are programs of tasks.
const OF_TASKS: &[PoolOf] = &[
    Ranking::POOL,
    Counting::POOL,
    Clustering::POOL,
    Pricing::POOL,
    Multiplication::POOL,
    Archiving::<Vec<u8>>::POOL,
    WordCount::POOL,
];

/// Returns the program with this number, for [`outlive_run::host::work`].
pub fn by_number(number: u64) -> Option<Box<dyn Work>> {
    let pool = OF_TASKS.iter().find(|pool| pool.number == number)?;
    Some(Box::new(PoolWork(*pool)))
}
