//! Programs that outlive the hosts running them.
pub mod driver;
pub mod host;
pub mod input;
pub mod key;
pub mod mapreduce;
pub mod run;
pub mod size;
pub mod sweeps;
pub mod table;
pub mod tokens;
pub mod wordcount;
pub mod work_list;
