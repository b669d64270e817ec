//! Measures the costs of Outlive and the tables of its papers on this machine, and simulates the
//! figures of a paper about machines that do not exist.
//!
//! A [`Study`] answers with [`Row`]s. Every claim is a ratio to a named peer or a stated limit,
//! measured in pairs: ours and the peer alternate in one run, in many short rounds. A goal holds
//! when the 95% interval of the median ratio reaches it, that is, when some of the interval lies on
//! the goal's side. Each ratio comes with the peer's ratio to itself (A/A), and each study with the
//! part of the machine's time that was stolen from it during the study. `paper` holds numbers from
//! a paper's text or tables, and nothing else.
//!
//! A study that needs other processes starts its own program again ([`Launcher`]). A program of
//! another crate that runs studies begins with a call of [`play`].
//!
//! ```no_run
//! use outlive_studies::{Effort, Launcher, Plan, studies};
//!
//! // In `main`, before anything else: this process may be a part of a study.
//! if let Some(played) = outlive_studies::play() {
//!     played.unwrap();
//!     return;
//! }
//! let plan = Plan::new(Effort::Quick, Launcher::this_program([]).unwrap());
//! let buddy = studies().iter().find(|study| study.name == "buddy").unwrap();
//! for row in buddy.run(&plan, &mut |_| ()).unwrap() {
//!     println!("{} {}: {:?} {}", row.case, row.metric, row.ours, row.unit);
//! }
//! ```

mod buddy;
pub mod chart;
mod children;
mod clock;
mod cost;
mod crowd;
mod dart;
#[cfg(any(feature = "lupin", feature = "mpi", feature = "ray"))]
mod engines;
mod guests;
mod heap;
mod hosts;
mod leased_objects;
mod locks;
mod lone_member;
mod lupin;
mod lupin_restart;
mod lupin_table1;
pub mod machine;
mod map;
mod modc;
mod notify;
mod objects;
pub mod paired;
mod pandora;
mod pool;
mod recxl;
mod row;
mod scaling;
mod scratch;
pub mod sheet;
mod spawn;
mod stack_offset;
mod stage;
pub mod statistics;
mod store_executors;
mod store_peers;
mod study;
mod text;
mod wordcount_kills;

pub use children::{Launcher, play};
pub use row::{Goal, How, On, Op, Row};
pub use study::{Effort, Plan, Progress, Run, Study, StudyError, Unfinished};

/// All studies, in the order in which they are listed.
pub fn studies() -> &'static [Study] {
    &[
        locks::STUDY,
        notify::STUDY,
        objects::STUDY,
        leased_objects::STUDY,
        pool::access::STUDY,
        pool::replicas::STUDY,
        crowd::STUDY,
        buddy::STUDY,
        heap::STUDY,
        map::STUDY,
        spawn::STUDY,
        wordcount_kills::STUDY,
        store_executors::STUDY,
        lupin_table1::STUDY,
        lupin_restart::STUDY,
        guests::STUDY,
        lupin::TABLE3,
        lupin::TABLE4,
        modc::FIG3,
        modc::FIG4,
        pandora::TABLE4_1,
        pandora::FIG4_4,
        pandora::FIG4_5,
        pandora::FIG4_6,
        pandora::LATCH_TO_LOG,
        pandora::FIG4_7,
        pandora::FIG4_8,
        pandora::FIG4_9,
        pandora::FIG4_10,
        pandora::FIG4_11,
        pandora::FIG4_12,
        pandora::FIG4_13,
        pandora::FIG4_14,
        pandora::STOLEN,
        pandora::BLOCKING,
        pandora::FLAT,
        recxl::FIG2,
        recxl::FIG10,
        recxl::FIG11,
        recxl::FIG12,
        recxl::FIG13,
        recxl::FIG14,
        recxl::FIG15,
        recxl::FIG16,
        recxl::FIG17,
        recxl::FIG18,
        recxl::TENFOLD,
        recxl::OURS,
        store_peers::STUDY,
        dart::STUDY,
    ]
}
