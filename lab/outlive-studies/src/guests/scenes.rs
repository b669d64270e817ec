//! The scenarios with two guests: increments, a word count, a kill, a stop.

use super::SUSPICION;
use super::guest::Heard;
use super::lab::{GOES, Lab, POD, STAYS};
use super::part::{BETWEEN_UNITS, IN_A_UNIT, IS_THERE, InGuest, RECOVERED, SILENCE, WORKS};
use crate::{Run, StudyError};
use outlive_programs::tokens::Tokens;
use outlive_programs::wordcount::{count_plainly, shipped_text, sort};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The id of the watching host in the guest that stays, and that of the other guest's host. The run
/// itself has the first two ids.
const WATCHES: u32 = 40;
const HOST: u32 = 50;

/// The outcome of a count by both guests.
pub struct Together {
    pub is_exact: bool,
    /// The number of tasks that the second guest has executed.
    pub tasks: u64,
}

/// The outcome of the kill of a guest. Times are since the stop that precedes the kill.
pub struct Death {
    pub is_exact: bool,
    /// The number of units that were re-executed.
    pub redone: u64,
    /// The request of the fence command.
    pub asked: Duration,
    /// The answer to it, after the guest is gone.
    pub answered: Duration,
    /// The report of the death.
    pub told: Duration,
    pub recovered: Duration,
    /// The end of the count.
    pub done: Duration,
    /// The longest interval between two of its heartbeats before its worker counted.
    pub silence: Duration,
    /// The times from its next start until its shell was ready, and until it had joined.
    pub boot: Duration,
    pub rejoined: Duration,
}

/// The outcome of the stop of a guest. Times are since the stop.
pub struct Stop {
    pub is_exact: bool,
    pub redone: u64,
    /// The refusal of the first fence.
    pub refused: Duration,
    /// Whether its death was reported, or its generation rose, before a fence had succeeded.
    pub rose_without_fence: bool,
    pub answered: Duration,
    pub told: Duration,
}

/// Returns the SHA-256 of the output of a correct count of `copies` of the text: a line for each
/// word, by falling count.
pub fn expected(copies: u64) -> String {
    let mut counts = HashMap::new();
    count_plainly(&shipped_text(), Tokens::default(), &mut counts);
    let mut counts: Vec<(Vec<u8>, u64)> = counts
        .into_iter()
        .map(|(word, count)| (word.into_vec(), count * copies))
        .collect();
    sort(&mut counts);
    let mut digest = Sha256::new();
    for (word, count) in counts {
        digest.update(format!("{count}\t"));
        digest.update(word);
        digest.update("\n");
    }
    digest
        .finalize()
        .iter()
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// Returns the flags with which a pod of guests is created.
fn settings() -> String {
    let suspicion = SUSPICION.as_millis();
    format!("--real-hosts --suspicion {suspicion}ms --fence-command /bin/fence")
}

/// Both guests increment the same words `times` times. Returns how many increments are lost.
pub fn increment(run: &Run<'_>, lab: &mut Lab, times: u64) -> Result<u64, StudyError> {
    let create = format!("outlive pod create {POD} --size 4M --ids 16 --without-heap");
    lab.stays.shell(run, &create)?;
    let pod = POD.into();
    let increment = InGuest::Increment { pod, times }.shell_command();
    lab.goes
        .shell(run, &format!("{increment} >/tmp/sums 2>&1 &"))?;
    let said = lab.stays.shell(run, &format!("{increment} 2>&1"))?;
    lab.goes.shell(run, "wait $!; cat /tmp/sums")?;
    lab.stays
        .shell(run, &format!("outlive pod destroy {POD}"))?;
    let sums: Vec<u64> = said
        .split_whitespace()
        .map_while(|sum| sum.parse().ok())
        .collect();
    let [small, large] = sums[..] else {
        return Err(lab.stays.failed(format!("its increments say {said:?}")));
    };
    Ok((2 * times).abs_diff(small) + (2 * times).abs_diff(large))
}

/// Starts a count in the guest that stays, with one worker there and one in the other guest, which
/// waits for the pod.
fn start_counting(run: &Run<'_>, lab: &mut Lab) -> Result<(), StudyError> {
    let settings = settings();
    let work = format!(
        "outlive worker --pod {POD} --host {HOST} --name {GOES} --wait 60 >/dev/ttyS3 2>&1 &"
    );
    lab.goes.shell(run, &work)?;
    let count = format!(
        "rm -f /tmp/status; {{ outlive run wordcount /text/words --hosts 1 --kill 0 --supervise none --unit 1M \
         --pod {POD} {settings} --output /tmp/counts --json >/tmp/report 2>/tmp/errors; echo $? >/tmp/status; }} &"
    );
    lab.stays.shell(run, &count).map(drop)
}

/// Waits for the end of the count. Returns whether it is exact, and the number of units that were
/// re-executed.
fn finish_counting(
    run: &Run<'_>,
    lab: &mut Lab,
    expected: &str,
) -> Result<(bool, u64), StudyError> {
    let stays = &mut lab.stays;
    // By a file: this shell does not always know a job any more that ended during another command.
    let status = "until [ -s /tmp/status ]; do sleep 0.1; done; cat /tmp/status";
    let status = stays.shell(run, status)?;
    if status.trim() != "0" {
        let said = stays.shell(run, "cat /tmp/errors")?;
        let status = status.trim();
        return Err(stays.failed(format!("its word count ends with {status}: {said}")));
    }
    let report = stays.shell(run, "cat /tmp/report")?;
    let report: Value = serde_json::from_str(&report)
        .map_err(|error| stays.failed(format!("its report is no JSON ({error}): {report}")))?;
    let sum = stays.shell(run, "sha256sum /tmp/counts")?;
    let redone = report["units_redone"].as_u64();
    let redone = redone.ok_or_else(|| stays.failed(format!("it reports {report}")))?;
    Ok((sum.split_whitespace().next() == Some(expected), redone))
}

/// Starts a count as [`start_counting`] does. Additionally starts, in the guest that stays, a host
/// that reports deaths and a process that observes the other guest's host; with `guarded`, also one
/// more process of the other guest's host. Waits until all have joined and that host's worker
/// counts.
fn count_and_watch(run: &Run<'_>, lab: &mut Lab, guarded: bool) -> Result<(), StudyError> {
    lab.forget();
    let look = InGuest::LookAt {
        pod: POD.into(),
        pool: "wordcount".into(),
        host: HOST,
        beside: WATCHES,
        processes: 2 + usize::from(guarded),
    };
    let look = format!("{} >/dev/ttyS3 2>&1 &", look.shell_command());
    lab.stays.shell(run, &look)?;
    start_counting(run, lab)?;
    let is_there = lab.hear(run, "that the pod is there", |heard| heard.line == IS_THERE);
    if let Err(StudyError::Void { what }) = is_there {
        let said = lab.stays.shell(run, "cat /tmp/errors")?;
        return Err(StudyError::void(format!("{what}; the count says: {said}")));
    }
    is_there?;
    let host = |host: u32, name: &str, pid: &str| {
        format!("outlive pod host {POD} --host {host} --name {name} >/dev/ttyS3 2>&1 & {pid}=$!")
    };
    lab.stays.shell(run, &host(WATCHES, STAYS, "watches"))?;
    if guarded {
        lab.goes.shell(run, &host(HOST, GOES, "joins"))?;
    }
    hear_that_it_works(run, lab)
}

/// Ends the processes that [`count_and_watch`] has started, and removes the pod.
fn leave(run: &Run<'_>, lab: &mut Lab) -> Result<(), StudyError> {
    let leave = format!("kill -TERM $watches; wait; outlive pod destroy {POD}");
    lab.stays.shell(run, &leave).map(drop)
}

fn is_death(heard: &Heard) -> bool {
    let host = format!("host {HOST}.");
    heard.guest == STAYS && heard.line.contains(&host) && heard.line.contains("died")
}

/// Lets workers of both guests count words. Checks that the run removes its pod when it ends.
pub fn count_together(
    run: &Run<'_>,
    lab: &mut Lab,
    expected: &str,
) -> Result<Together, StudyError> {
    lab.forget();
    start_counting(run, lab)?;
    let left = lab.hear(run, "the end of the worker", |heard| {
        heard.guest == GOES && heard.line.contains("left in good order")
    })?;
    let words = left.line.split_whitespace();
    let tasks = words.filter_map(|word| word.parse().ok()).next();
    let tasks = tasks.ok_or_else(|| lab.goes.failed(format!("it says {:?}", left.line)))?;
    let (is_exact, _) = finish_counting(run, lab, expected)?;
    let (status, said) = lab
        .stays
        .try_shell(run, &format!("outlive pod status {POD} 2>&1"))?;
    if status == 0 {
        return Err(lab.stays.failed(format!("a run has left its pod: {said}")));
    }
    Ok(Together { is_exact, tasks })
}

/// Stops the guest [`GOES`] by its monitor, in a unit. Returns the time of the stop.
fn stop_in_a_unit(run: &Run<'_>, lab: &mut Lab) -> Result<Instant, StudyError> {
    loop {
        let stopped = Instant::now();
        lab.goes.ask_monitor(run, "stop")?;
        let is_still = |heard: &Heard| [IN_A_UNIT, BETWEEN_UNITS].contains(&heard.line.as_str());
        let heard = lab.hear(run, "that the guest stands still", is_still)?;
        if heard.line == IN_A_UNIT {
            return Ok(stopped);
        }
        lab.goes.ask_monitor(run, "cont")?;
        hear_that_it_works(run, lab)?;
    }
}

fn hear_that_it_works(run: &Run<'_>, lab: &mut Lab) -> Result<(), StudyError> {
    let works = |heard: &Heard| heard.line == WORKS;
    lab.hear(run, "that the second guest counts", works)
        .map(drop)
}

/// Kills one guest while it counts: stops it by its monitor, so that it never writes again, and
/// ends it when it is seen to have been in a unit. It is fenced, restarted, and joins again.
pub fn kill(run: &Run<'_>, lab: &mut Lab, expected: &str) -> Result<Death, StudyError> {
    count_and_watch(run, lab, false)?;
    let killed = stop_in_a_unit(run, lab)?;
    lab.goes.quit()?;
    let since = |at: Instant| at.saturating_duration_since(killed);
    let asked = since(lab.hear_fence(run, HOST)?.at);
    let answered = switch_off(lab)?;
    let told = lab.hear(run, "the death of the guest", is_death)?;
    let recovered = lab.hear(run, "its recovery", |heard| heard.line == RECOVERED)?;
    let silence = lab.hear(run, "its silences", |heard| heard.line.starts_with(SILENCE))?;
    let silence = { silence.line.strip_prefix(SILENCE) }
        .and_then(|micros| micros.trim().parse().ok())
        .map(Duration::from_micros);
    let silence = silence.ok_or_else(|| lab.stays.failed("it reports no silence".into()))?;
    let (is_exact, redone) = finish_counting(run, lab, expected)?;
    let done = killed.elapsed();
    lab.restart(run)?;
    let join =
        format!("outlive pod host {POD} --host {HOST} --name {GOES} >/dev/ttyS3 2>&1 & joins=$!");
    lab.goes.shell(run, &join)?;
    let host = format!("host {HOST}.");
    let rejoined = lab.hear(run, "that the guest has joined again", |heard| {
        heard.guest == STAYS && heard.line.contains(&host) && heard.line.contains("rejoined")
    })?;
    let rejoined = rejoined.at - lab.goes.started;
    lab.goes.shell(run, "kill -TERM $joins; wait")?;
    leave(run, lab)?;
    Ok(Death {
        is_exact,
        redone,
        asked,
        answered: since(answered),
        told: since(told.at),
        recovered: since(recovered.at),
        done,
        silence,
        boot: lab.goes.boot,
        rejoined,
    })
}

/// Ends the guest [`GOES`] and answers the fence command when it is gone. Returns the time of the
/// answer.
fn switch_off(lab: &mut Lab) -> Result<Instant, StudyError> {
    lab.goes.quit()?;
    let answered = Instant::now();
    lab.stays.answer(&HOST.to_string(), "off")?;
    Ok(answered)
}

/// The time for which a stopped guest continues before the second fence.
const GOES_ON: Duration = Duration::from_millis(500);

/// Stops one guest while it counts. The first fence is refused, and the guest continues; the second
/// one ends it.
pub fn stop(run: &Run<'_>, lab: &mut Lab, expected: &str) -> Result<Stop, StudyError> {
    // The second guest's host has one more process, which stays when the work is done.
    count_and_watch(run, lab, true)?;
    let stopped = Instant::now();
    lab.goes.ask_monitor(run, "stop")?;
    let refused = lab.hear_fence(run, HOST)?.at;
    lab.stays.answer(&HOST.to_string(), "refused")?;
    lab.hear(run, "that the guest is suspected", |heard| {
        heard.guest == STAYS && heard.line.contains("suspected")
    })?;
    let generation = |lab: &mut Lab| -> Result<Option<String>, StudyError> {
        let status = lab.stays.shell(run, &format!("outlive pod status {POD}"))?;
        let host = format!("host {HOST}.");
        let mut lines = status.lines().filter(|line| line.starts_with(&host));
        Ok(lines.next().map(str::to_owned))
    };
    let suspected = generation(lab)?;
    let is_suspected = suspected
        .as_ref()
        .is_some_and(|line| line.contains("fencing"));
    lab.goes.ask_monitor(run, "cont")?;
    std::thread::sleep(GOES_ON);
    let told_early = lab.has_heard(is_death);
    let again = lab.hear_fence(run, HOST)?;
    let answered = switch_off(lab)?;
    let told = lab.hear(run, "the death of the guest", is_death)?;
    debug_assert!(again.at < answered);
    let (is_exact, redone) = finish_counting(run, lab, expected)?;
    leave(run, lab)?;
    Ok(Stop {
        is_exact,
        redone,
        refused: refused - stopped,
        rose_without_fence: told_early || !is_suspected,
        answered: answered - stopped,
        told: told.at - stopped,
    })
}
