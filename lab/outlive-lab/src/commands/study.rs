//! `outlive-lab study`: measures Outlive against its peers, and reproduces the papers' tables on
//! this machine.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use outlive_studies::{
    Effort, How, Launcher, Plan, Progress, Row, Study as OneStudy, StudyError, Unfinished, chart,
    machine, sheet, studies,
};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Studies.
#[derive(Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    outlive-lab study list\n  \
    outlive-lab study locks --quick\n  \
    outlive-lab study modc-fig3 modc-fig4 --scale 20\n  \
    outlive-lab study lupin-table3 lupin-table4  # LUPIN's six programs; half an hour, 12 GB of \
    memory\n  \
    outlive-lab study recxl-fig10               # a simulated cluster; minutes, and with --full \
    hours\n  \
    outlive-lab study all --output /tmp/studies --json\n\n\
    Every claim is a ratio to a named peer, both measured alternately in one run; a goal holds \
    when the 95% interval of the median ratio reaches it. Lines \"A/A\" compare the peer with \
    itself: they show the noise of this machine. Simulations (recxl-...) are deterministic: their \
    intervals are from the smallest to the largest result of their seeds. With --quick their \
    inputs are those of tests (in recxl-fig13, recxl-fig14 and recxl-fig15 the beginning of longer \
    ones), too short to be judged or compared with the paper. Exits with 1 if a goal does not \
    hold. Run nothing else on the machine at the same time."
)]
pub struct Study {
    /// The names of studies; `list` prints them, `all` runs all of them
    #[arg(value_name = "NAME|list", required = true)]
    names: Vec<String>,
    /// Run a shorter version: less than a minute each, two for `guests`
    #[arg(long)]
    quick: bool,
    /// Run simulations (recxl-...) at the length of their paper: hours
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// The graphs of modc-fig3 and modc-fig4 have 2^S rows, and 16 edges for each; by default 2^22,
    /// with --quick 2^19. The paper's have 2^26, which takes 20 GB of memory and some hours
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(10..=28))]
    scale: Option<u32>,
    /// Print the rows as JSON: one array
    #[arg(long)]
    json: bool,
    /// The directory for NAME.csv and NAME.svg; it is created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "studies")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
}

/// Runs the part of a study for which this process was started.
pub fn part() -> Result<(), Failure> {
    match outlive_studies::play() {
        Some(played) => played.map_err(Failure::new),
        None => Err(Failure::Usage(
            "`outlive-lab study-part` is started by studies only: run `outlive-lab study NAME`"
                .into(),
        )),
    }
}

impl Study {
    pub fn run(self) -> Result<(), Failure> {
        if self.names.iter().any(|name| name == "list") {
            return self.list();
        }
        let chosen = self.chosen()?;
        self.check_scale(&chosen)?;
        fs::create_dir_all(&self.output).map_err(|error| {
            Failure::new(format_args!(
                "{} cannot be created for the results: {error}; give another directory with \
                 --output",
                self.output.display()
            ))
        })?;
        let launcher = Launcher::this_program(["study-part".into()]).map_err(Failure::new)?;
        let effort = if self.quick {
            Effort::Quick
        } else {
            Effort::Full
        };
        let plan = Plan {
            lab: std::env::current_exe().ok(),
            scale: self.scale,
            full_length: self.full,
            ..Plan::new(effort, launcher)
        };
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&plan.stop)).map_err(|error| {
                Failure::new(format_args!(
                    "the handler of signal {signal} cannot be installed: {error}"
                ))
            })?;
        }
        if !self.json {
            output::line(format_args!("on {}", machine::description()))?;
        }
        let mut all = Vec::new();
        let ran = { chosen.into_iter() }.try_for_each(|study| self.one(study, &plan, &mut all));
        // Also the rows measured before a failure: they may be the work of hours.
        if self.json {
            output::json(&all)?;
        }
        ran.and_then(|()| judge(&all))
    }

    fn list(&self) -> Result<(), Failure> {
        let listed = studies().iter().map(|study| Listed {
            name: study.name,
            about: study.about,
        });
        if self.json {
            return output::json(&listed.collect::<Vec<_>>());
        }
        for Listed { name, about } in listed {
            output::line(format_args!("{name:16}  {about}"))?;
        }
        Ok(())
    }

    fn chosen(&self) -> Result<Vec<&'static OneStudy>, Failure> {
        if self.names.iter().any(|name| name == "all") {
            return Ok(studies().iter().collect());
        }
        let find = |name: &String| {
            let found = studies().iter().find(|study| study.name == name);
            found.ok_or_else(|| {
                Failure::Usage(format!(
                    "there is no study {name:?}; `outlive-lab study list` prints the names"
                ))
            })
        };
        self.names.iter().map(find).collect()
    }

    /// Checks that one of the chosen studies has a scale. Of all studies some do.
    fn check_scale(&self, chosen: &[&OneStudy]) -> Result<(), Failure> {
        if self.scale.is_none() || self.names.iter().any(|name| name == "all") {
            return Ok(());
        }
        let Some(without) = chosen.iter().find(|study| !study.has_scale()) else {
            return Ok(());
        };
        let scaled: Vec<_> = { studies().iter() }
            .filter(|study| study.has_scale())
            .map(|study| study.name)
            .collect();
        Err(Failure::Usage(format!(
            "--scale does not apply to {}: it is for {}",
            without.name,
            scaled.join(" and ")
        )))
    }

    /// Runs a study, and appends its rows to `all` whether it fails or not.
    fn one(&self, study: &OneStudy, plan: &Plan, all: &mut Vec<Row>) -> Result<(), Failure> {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{prefix} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(study.name);
        // Without a visible bar, a line for each row shows the progress.
        let is_seen = std::io::stderr().is_terminal();
        let rows = study.run(plan, &mut |progress| match progress {
            Progress::Begins(what) => {
                bar.set_message(what.to_owned());
                bar.tick();
            }
            Progress::Measured(row) if !is_seen => {
                // If standard error is closed, the result must do.
                let _ = writeln!(std::io::stderr(), "{}: {}", study.name, sheet::line(row));
            }
            Progress::Measured(_) => {}
        });
        bar.finish_and_clear();
        let rows = match rows {
            Ok(rows) => rows,
            Err(Unfinished {
                error: error @ StudyError::Missing { .. },
                ..
            }) => {
                output::note(format_args!("the study {} is skipped: {error}", study.name));
                return Ok(());
            }
            Err(unfinished) => {
                let failure = self.unfinished(study, &unfinished)?;
                all.extend(unfinished.rows);
                return Err(failure);
            }
        };
        let first = all.len();
        all.extend(rows);
        let rows = &all[first..];
        let (csv, svg) = (self.file(study, "csv"), self.file(study, "svg"));
        File::create(&csv)
            .and_then(|file| sheet::csv(rows, file))
            .map_err(|error| unwritten(&csv, &error))?;
        let title = match too_short(rows, plan) {
            Some(_) => format!("{}, a first look (--quick): {}", study.name, study.about),
            None => format!("{}: {}", study.name, study.about),
        };
        let drawn = chart::svg(&title, rows);
        let drawn = drawn.map_err(Failure::new)?;
        fs::write(&svg, drawn).map_err(|error| unwritten(&svg, &error))?;
        if !self.json {
            table(study, "", rows)?;
            let said = too_short(rows, plan).map_or_else(|| verdict(rows), str::to_owned);
            output::line(said)?;
            output::line(format_args!(
                "written: {}, {}",
                csv.display(),
                svg.display()
            ))?;
        }
        Ok(())
    }

    /// Shows the rows of a study that failed, which may be the work of half an hour.
    fn unfinished(&self, study: &OneStudy, it: &Unfinished) -> Result<Failure, Failure> {
        if !self.json && !it.rows.is_empty() {
            table(study, ", incomplete", &it.rows)?;
        }
        let why = match &it.error {
            StudyError::Stopped => " was interrupted".into(),
            error => format!(": {error}"),
        };
        let name = study.name;
        Ok(Failure::new(format_args!(
            "the study {name}{why}; nothing was written"
        )))
    }

    fn file(&self, study: &OneStudy, extension: &str) -> PathBuf {
        self.output.join(format!("{}.{extension}", study.name))
    }
}

fn table(study: &OneStudy, how_far: &str, rows: &[Row]) -> Result<(), Failure> {
    let OneStudy { name, about, .. } = study;
    output::line(format_args!("\n{name}{how_far}: {about}"))?;
    output::print(sheet::table(rows))
}

/// A missed goal counts as a fault that was found.
fn judge(rows: &[Row]) -> Result<(), Failure> {
    match rows.iter().any(Row::fails) {
        true => Err(Failure::Found),
        false => Ok(()),
    }
}

fn verdict(rows: &[Row]) -> String {
    let goals = rows.iter().filter(|row| row.goal.is_some()).count();
    let missed = rows.iter().filter(|row| row.fails()).count();
    match (goals, missed) {
        (0, _) => "no goals are set".into(),
        (1, 0) => "the goal holds".into(),
        (_, 0) => format!("all {goals} goals hold"),
        _ => format!("{missed} of {goals} goals are MISSED"),
    }
}

/// Returns a note if the simulations were too short to be judged.
fn too_short(rows: &[Row], plan: &Plan) -> Option<&'static str> {
    let is_simulated = rows.iter().any(|row| row.how == Some(How::Simulated));
    let is_short = plan.effort != Effort::Full && !plan.full_length;
    (is_simulated && is_short).then_some(
        "no goals are judged: with --quick the simulated runs are too short to be compared with \
         the paper",
    )
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format_args!(
        "{} cannot be written: {error}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_studies::{Goal, statistics::Estimate};

    fn row(ratio: f64) -> Row {
        let estimate = Estimate {
            value: ratio,
            low: ratio,
            high: ratio,
        };
        Row::new("case", "metric", "ns")
            .ours(1.0)
            .peer("peer", 1.0)
            .ratio(estimate)
            .goal(Goal::ratio_at_most(1.0))
    }

    #[test]
    fn a_missed_goal_is_exit_code_1_and_said() {
        assert!(judge(&[row(0.9), row(1.0)]).is_ok());
        assert!(matches!(judge(&[row(0.9), row(1.1)]), Err(Failure::Found)));
        assert_eq!(verdict(&[row(0.9), row(1.1)]), "1 of 2 goals are MISSED");
        assert_eq!(verdict(&[row(0.9)]), "the goal holds");
        assert_eq!(verdict(&[row(0.9), row(0.8)]), "all 2 goals hold");
        assert_eq!(verdict(&[]), "no goals are set");
    }

    #[test]
    fn a_first_look_at_what_is_simulated_is_said_to_be_too_short() {
        let launcher = || Launcher::this_program([]).unwrap();
        let simulated = [Row::new("case", "metric", "times").how(How::Simulated)];
        let [quick, usual] =
            [Effort::Quick, Effort::Full].map(|effort| Plan::new(effort, launcher()));
        assert!(too_short(&simulated, &quick).is_some());
        assert_eq!(too_short(&simulated, &usual), None);
        assert_eq!(too_short(&[row(0.9)], &quick), None);
    }
}
