//! `outlive pod watch`: a live view in the terminal.

mod scene;
mod screen;

use super::Which;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use scene::Scene;
use screen::Screen;
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `outlive pod watch`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod watch /dev/shm/demo\n  \
    outlive pod watch /dev/shm/demo --once      # one frame as text\n\n\
    Keys: up and down (or k and j) select a member, whose locks are shown; a shows or hides \
    departed members; q quits. Pools of workers are below the members, as in `outlive pod status`. \
    The command does not join the pod and does not delay its members.")]
pub struct Watch {
    #[command(flatten)]
    which: Which,
    /// Interval between two updates
    #[arg(long, default_value = "250ms", value_name = "TIME", value_parser = period)]
    every: Duration,
    /// Print one frame as text, after one interval
    #[arg(long)]
    once: bool,
    /// Width of that frame in columns
    #[arg(long, default_value_t = 120, requires = "once",
          value_parser = clap::value_parser!(u16).range(40..=1000))]
    width: u16,
}

/// The longest time until a signal to end is handled.
const ATTENTION: Duration = Duration::from_millis(250);
/// The longest time that the main thread may take to end after the terminal was closed.
const GRACE: Duration = Duration::from_secs(1);

/// Ends the process when its terminal is closed. The terminal library does not return from its poll
/// then: each read from a closed terminal returns 0 bytes immediately. This process is not a member
/// of the pod, so it leaves nothing behind.
fn end_with_the_terminal(stop: Arc<AtomicBool>) -> io::Result<()> {
    let watch = move || {
        while !is_closed(None) {}
        stop.store(true, Ordering::Relaxed);
        std::thread::sleep(GRACE);
        std::process::exit(0);
    };
    let watcher = std::thread::Builder::new().name("terminal".into());
    watcher.spawn(watch).map(drop)
}

/// Returns whether the terminal was closed. Waits for that for `timeout`, or without a limit.
fn is_closed(timeout: Option<&Timespec>) -> bool {
    let stdin = io::stdin();
    // No events are requested: a hang-up is reported in any case.
    let mut polled = [PollFd::new(&stdin, PollFlags::empty())];
    matches!(poll(&mut polled, timeout), Ok(1..))
}

fn period(text: &str) -> Result<Duration, String> {
    let period =
        humantime::parse_duration(text).map_err(|error| format!("{error}; write 100ms or 1s"))?;
    if (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&period) {
        Ok(period)
    } else {
        Err("it has to be between 10ms and a minute".into())
    }
}

/// The terminal. Drop shows its cursor. The library's own drop would report a failure on standard
/// error, which panics if that is the terminal, and the terminal was closed.
struct Shown(ManuallyDrop<ratatui::DefaultTerminal>);

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
    }
}

impl Watch {
    pub fn run(self) -> Result<(), Failure> {
        let pod = self.which.observe()?;
        let mut scene = Scene::new(self.which.path(), pod);
        if self.once {
            std::thread::sleep(self.every);
            scene.look();
            return output::print(frame(&mut scene, self.width)?);
        }
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(Failure::Usage(
                "a live view needs a terminal as standard input and output; --once prints one \
                 frame as text"
                    .into(),
            ));
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(terminal)?;
        }
        end_with_the_terminal(Arc::clone(&stop)).map_err(terminal)?;
        // Restores the terminal on a panic too.
        let mut shown = Shown(ManuallyDrop::new(ratatui::try_init().map_err(terminal)?));
        let outcome = self.live(&mut scene, &mut shown.0, &stop);
        drop(shown);
        let restored = ratatui::try_restore().map_err(terminal);
        // Errors from a terminal that has been closed do not matter.
        if stop.load(Ordering::Relaxed) || is_closed(Some(&Timespec::default())) {
            return Ok(());
        }
        outcome.and(restored)
    }

    fn live(
        &self,
        scene: &mut Scene,
        terminal_screen: &mut ratatui::DefaultTerminal,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let mut screen = Screen::default();
        while !stop.load(Ordering::Relaxed) {
            terminal_screen
                .draw(|frame| screen.draw(frame, scene))
                .map_err(terminal)?;
            let next = Instant::now() + self.every;
            loop {
                let left = next.saturating_duration_since(Instant::now());
                if left.is_zero() || stop.load(Ordering::Relaxed) {
                    scene.look();
                    break;
                }
                if !event::poll(left.min(ATTENTION)).map_err(terminal)? {
                    continue;
                }
                match event::read().map_err(terminal)? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        let control = key.modifiers.contains(KeyModifiers::CONTROL);
                        match key.code {
                            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                            KeyCode::Char('c') if control => return Ok(()),
                            KeyCode::Char('a') => screen.show_gone = !screen.show_gone,
                            KeyCode::Up | KeyCode::Char('k') => screen.move_by(-1),
                            KeyCode::Down | KeyCode::Char('j') => screen.move_by(1),
                            KeyCode::PageUp => screen.move_by(-10),
                            KeyCode::PageDown => screen.move_by(10),
                            KeyCode::Home => screen.move_by(isize::MIN),
                            KeyCode::End => screen.move_by(isize::MAX),
                            _ => continue,
                        }
                        // Keys take effect immediately.
                        break;
                    }
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Returns one frame as text, high enough for all members.
fn frame(scene: &mut Scene, width: u16) -> Result<String, Failure> {
    let mut screen = Screen::default();
    let height = screen.height_for(scene);
    let Ok(mut drawn) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = drawn.draw(|frame| screen.draw(frame, scene));
    let buffer = drawn.backend().buffer();
    let lines = buffer.content().chunks(usize::from(width)).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    Ok(lines.collect())
}

fn terminal(error: io::Error) -> Failure {
    Failure::new(format_args!("the terminal cannot be used: {error}"))
}
