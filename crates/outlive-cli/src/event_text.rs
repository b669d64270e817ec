//! Descriptions of a group's events.

use crate::output::printable;
use outlive::membership::{Event, EventKind, Level, News, Tables};

/// Describes an event in one line.
pub fn describe(tables: Tables, news: &News) -> String {
    match news {
        News::Event(event) => format!("#{:<4} {}", event.sequence, sentence(tables, event)),
        News::Resync {
            missed, members, ..
        } => {
            let now = members.iter().filter(|(_, state)| state.standing.is_in());
            format!(
                "      {missed} events were missed; there are {} members now",
                now.count()
            )
        }
    }
}

fn sentence(tables: Tables, event: &Event) -> String {
    let level = event.level.map_or("member", Level::name);
    let instance = event.instance;
    let record = tables.records().read(instance);
    let who = match record {
        Some(record) if event.level == Some(Level::Host) => {
            format!("{level} {instance} ({})", record.name)
        }
        Some(record) if record.name.is_empty() => {
            format!("{level} {instance} (pid {})", record.thread.process.pid)
        }
        Some(record) => format!(
            "{level} {instance} ({}, pid {})",
            record.name, record.thread.process.pid
        ),
        None => format!("{level} {instance}"),
    };
    // Another user may have chosen the name.
    let who = printable(&who);
    match event.kind {
        EventKind::ThreadDied | EventKind::ProcessDied | EventKind::HostDied => {
            let why = if event.fenced {
                ": it was silent, and was fenced"
            } else {
                ""
            };
            format!("{who} died{why}")
        }
        EventKind::HostSuspected => {
            format!("{who} is suspected: it is silent and could not be fenced")
        }
        kind => format!("{who} {}", kind.name()),
    }
}
