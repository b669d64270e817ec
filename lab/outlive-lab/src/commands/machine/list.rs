//! `outlive-lab machine list`: the workloads, sizes and configurations.

use super::configuration::Configuration;
use super::size::Size;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::{Args, ValueEnum};
use outlive_machine::program::{Origin, Scale};
use serde::Serialize;

/// The list of workloads, sizes and configurations.
#[derive(Args, Debug)]
pub struct List {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    workloads: Vec<Workload>,
    sizes: Vec<Named>,
    configurations: Vec<Named>,
}

#[derive(Serialize)]
struct Workload {
    name: &'static str,
    stands_for: &'static str,
    store_fraction: Option<f64>,
    shared_store_fraction: Option<f64>,
    source: &'static str,
    differs: Option<&'static str>,
}

#[derive(Serialize)]
struct Named {
    name: String,
    about: String,
}

impl List {
    pub fn run(self) -> Result<(), Failure> {
        let listed = Listed {
            workloads: outlive_kernels::ALL.iter().map(workload).collect(),
            sizes: named::<Size>(),
            configurations: named::<Configuration>(),
        };
        if self.json {
            return output::json(&listed);
        }
        let mut table = Table::new([
            "WORKLOAD",
            "STANDS FOR",
            "STORES",
            "SHARED OF STORES",
            "SOURCE",
        ]);
        for one in &listed.workloads {
            table.row([
                one.name.to_owned(),
                one.stands_for.to_owned(),
                percent(one.store_fraction),
                percent(one.shared_store_fraction),
                one.source.to_owned(),
            ]);
        }
        table.lines().try_for_each(output::line)?;
        output::line("")?;
        let differ = listed.workloads.iter();
        for (name, why) in differ.filter_map(|one| Some((one.name, one.differs?))) {
            output::line(format_args!(
                "At size study with {} threads, a share of {name} differs from the published one \
                 by more than a quarter: {why}.",
                Origin::THREADS
            ))?;
        }
        for (heading, named) in [
            ("SIZE", &listed.sizes),
            ("CONFIGURATION", &listed.configurations),
        ] {
            let mut table = Table::new([heading, "WHAT IT IS"]);
            for one in named {
                table.row([one.name.clone(), one.about.clone()]);
            }
            output::line("")?;
            table.lines().try_for_each(output::line)?;
        }
        Ok(())
    }
}

fn workload((name, make): &(&'static str, outlive_kernels::Make)) -> Workload {
    let Origin {
        program,
        stores,
        shared_stores,
        source,
        differs,
    } = make(1, Scale::Test).origin();
    Workload {
        name,
        stands_for: program,
        store_fraction: stores,
        shared_store_fraction: shared_stores,
        source,
        differs,
    }
}

fn named<T: ValueEnum>() -> Vec<Named> {
    let values = T::value_variants().iter();
    let values = values.filter_map(ValueEnum::to_possible_value);
    let named = values.map(|value| Named {
        name: value.get_name().to_owned(),
        about: value
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default(),
    });
    named.collect()
}

/// Formats a share for people.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2}%", share * 100.0))
}
