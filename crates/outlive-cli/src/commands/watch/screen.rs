//! The rendering of a watched pod.

use super::scene::Scene;
use crate::amount::Bytes;
use crate::look::{Presence, Seen};
use crate::output;
use outlive::membership::{Level, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, TableState};

/// The viewer's choices.
#[derive(Debug, Default)]
pub struct Screen {
    /// Whether members that have left or died are shown.
    pub show_gone: bool,
    table: TableState,
    rows: usize,
}

/// The lines of a frame other than members, pools and events: two of heading, two of borders and
/// headings of the table, one of locks, one border of the events, one of keys.
const AROUND: usize = 7;
/// The maximum number of events in a frame of text.
const EVENTS_AT_ONCE: usize = 20;

impl Screen {
    /// Moves the selection.
    pub fn move_by(&mut self, rows: isize) {
        let last = self.rows.saturating_sub(1);
        let from = match self.table.selected() {
            Some(at) => at.saturating_add_signed(rows),
            None => 0,
        };
        self.table.select((self.rows > 0).then_some(from.min(last)));
    }

    /// Returns the height of a frame that shows the whole scene.
    pub fn height_for(&self, scene: &Scene) -> u16 {
        let members = self.shown(scene).len().max(1);
        let pools = scene.pools.len();
        let pools = pools + usize::from(pools > 0);
        let lines = members + pools + scene.told.len().clamp(1, EVENTS_AT_ONCE) + AROUND;
        u16::try_from(lines).unwrap_or(u16::MAX).min(2000)
    }

    /// Draws the scene.
    pub fn draw(&mut self, frame: &mut Frame<'_>, scene: &Scene) {
        let told = scene.told.len().clamp(1, EVENTS_AT_ONCE) as u16;
        let members = self.shown(scene).len().max(1) as u16 + 2;
        // Members first, but some lines are reserved for events.
        let room = frame.area().height.saturating_sub(4);
        // The pools get the remaining lines, but up to a third of all in any case.
        let pools = u16::try_from(scene.pools.len()).unwrap_or(u16::MAX);
        let pools = pools.saturating_add(u16::from(pools > 0));
        let pools = pools.min(room.saturating_sub(members + told + 1).max(room / 3));
        let room = room - pools;
        let events = (told + 1)
            .min(room.saturating_sub(members))
            .max((room / 3).min(told + 1));
        let [heading, table, locks, working, happened, keys] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Fill(1),
            Constraint::Length(1),
            Constraint::Length(pools),
            Constraint::Length(events),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(heading_lines(scene)), heading);
        self.draw_members(frame, table, scene);
        frame.render_widget(self.selected_locks(scene), locks);
        draw_pools(frame, working, scene);
        draw_events(frame, happened, scene);
        let gone = if self.show_gone { "hide" } else { "show" };
        let help = format!(" q quit   up/down select   a {gone} departed members");
        frame.render_widget(Line::from(help).dim(), keys);
    }

    fn shown<'s>(&self, scene: &'s Scene) -> Vec<(usize, &'s Seen)> {
        let tree = scene.look.tree();
        let may_be_shown = |seen: &Seen| {
            self.show_gone || seen.presence.is_some() || seen.state().status == Status::Dead
        };
        tree.into_iter()
            .filter(|(_, seen)| may_be_shown(seen))
            .collect()
    }

    fn draw_members(&mut self, frame: &mut Frame<'_>, area: Rect, scene: &Scene) {
        let shown = self.shown(scene);
        self.rows = shown.len();
        if self.table.selected().is_some_and(|at| at >= self.rows) {
            self.table.select(self.rows.checked_sub(1));
        }
        let block = Block::new().borders(Borders::TOP).title(" members ");
        if shown.is_empty() {
            let nobody = Paragraph::new("there are no members").dim().block(block);
            return frame.render_widget(nobody, area);
        }
        let headings = [" MEMBER", "STATUS", "PID/TID", "BEATS/S", "LOCKS", "NAME"];
        let cells: Vec<_> = shown
            .iter()
            .map(|(depth, seen)| member_cells(*depth, seen, scene))
            .collect();
        // As wide as the widest cell; the last column, the name, takes the remaining width.
        let widths = core::array::from_fn::<_, 6, _>(|column| {
            let widest = cells
                .iter()
                .map(|cells| cells[column].chars().count())
                .max();
            let width = widest.unwrap_or(0).max(headings[column].len());
            match column {
                5 => Constraint::Fill(1),
                _ => Constraint::Length(width as u16 + 1),
            }
        });
        let rows = shown
            .iter()
            .zip(cells)
            .map(|((_, seen), cells)| Row::new(cells).style(style_of(seen)));
        let table = Table::new(rows, widths)
            .header(Row::new(headings).add_modifier(Modifier::BOLD))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .block(block);
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    fn selected_locks(&self, scene: &Scene) -> Line<'static> {
        let shown = self.shown(scene);
        let Some((_, seen)) = self.table.selected().and_then(|at| shown.get(at)) else {
            return Line::default();
        };
        let who = format!(" {} {}", seen.level(), seen.status.instance());
        let Some(record) = &seen.status.record else {
            return Line::from(who);
        };
        if seen.locks.is_empty() && seen.mutexes.is_empty() {
            return Line::from(format!("{who}, user {}: holds no lock", record.uid));
        }
        let locks = { seen.locks.iter() }
            .map(|lock| format!("holds or acquires the lock at {}", lock.lock));
        let mutexes = { seen.mutexes.iter() }
            .map(|name| format!("holds the mutex `{}`", output::printable(name)));
        let all: Vec<_> = mutexes.chain(locks).collect();
        Line::from(format!("{who}, user {}: {}", record.uid, all.join(", ")))
    }
}

fn heading_lines(scene: &Scene) -> Vec<Line<'static>> {
    let look = &scene.look;
    let count = |level| {
        look.there()
            .filter(|seen| seen.state().level == Some(level))
            .count()
    };
    let destroyed = if scene.is_destroyed() {
        Span::from("  DESTROYED: its last members use it until they end").red()
    } else {
        Span::default()
    };
    let manager = match look.manager {
        Some(manager) => match look.members.get(&manager.id) {
            Some(seen) if seen.is_there() => {
                format!("fabric manager {manager} on host {}", seen.state().host)
            }
            _ => format!("the fabric manager {manager} has ended"),
        },
        None => "no fabric manager".into(),
    };
    let title = format!(
        " {}  {}, {} of {} ids used",
        scene.path.display(),
        Bytes(scene.pod.segment().size()),
        look.members.len(),
        scene.pod.tables().extent().ids,
    );
    let counts = format!(
        " hosts: {}, processes: {}, threads: {}, groups: {}; {manager}",
        count(Level::Host),
        count(Level::Process),
        count(Level::Thread),
        look.groups.len().saturating_sub(1),
    );
    vec![
        Line::from(vec![Span::from(title).bold(), destroyed]),
        Line::from(counts),
    ]
}

fn style_of(seen: &Seen) -> Style {
    match (seen.presence, seen.state().status) {
        (Some(Presence::Gone), _) | (_, Status::Dead) => Style::new().fg(Color::Red),
        (_, Status::Fencing) => Style::new().fg(Color::Yellow),
        (Some(_), _) => Style::new(),
        (None, _) => Style::new().add_modifier(Modifier::DIM),
    }
}

fn member_cells(depth: usize, seen: &Seen, scene: &Scene) -> [String; 6] {
    let instance = seen.status.instance();
    let rate = match seen.state().level {
        Some(Level::Host | Level::Process) => scene.rate(instance),
        _ => None,
    };
    let manager = if scene.look.manager == Some(instance) {
        " (fabric manager)"
    } else {
        ""
    };
    let indent = 1 + 2 * depth;
    [
        format!("{:indent$}{} {instance}", "", seen.level()),
        seen.condition(),
        seen.pid(),
        rate.map_or_else(|| "-".into(), |rate| format!("{rate:.1}")),
        seen.lock_summary(),
        format!("{}{manager}", seen.name()),
    ]
}

fn draw_pools(frame: &mut Frame<'_>, area: Rect, scene: &Scene) {
    let lines: Vec<_> = { scene.pools.iter() }
        .map(|line| Line::from(format!(" {line}")))
        .collect();
    let block = Block::new().borders(Borders::TOP).title(" pools ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, scene: &Scene) {
    let room = usize::from(area.height.saturating_sub(1));
    let skipped = scene.told.len().saturating_sub(room);
    let lines: Vec<_> = scene
        .told
        .iter()
        .skip(skipped)
        .map(|line| Line::from(line.as_str()))
        .collect();
    let block = Block::new().borders(Borders::TOP).title(" events ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
