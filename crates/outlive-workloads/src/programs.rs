//! The programs that hosts know, by the numbers that stand in the pod.

use crate::blackscholes::Pricing;
use crate::dedup::Archiving;
use crate::histogram::Counting;
use crate::host::Work;
use crate::kmeans::Clustering;
use crate::mapreduce::OnTasks;
use crate::matmul::Multiplication;
use crate::on_tasks::{PoolOf, PoolWork, TaskProgram};
use crate::pagerank::Ranking;
use crate::wordcount::WordCount;

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

/// The program with this number, for [`host::work`](crate::host::work).
pub fn of(number: u64) -> Option<Box<dyn Work>> {
    let pool = OF_TASKS.iter().find(|pool| pool.number == number)?;
    Some(Box::new(PoolWork(*pool)))
}
