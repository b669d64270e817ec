//! The drawing of a cycle: a node for each transaction, an arrow for each dependency.

use super::markup::escaped;
use crate::explain::Explanation;
use std::f64::consts::TAU;
use std::fmt::Write;

/// Width and height of the drawing of two transactions, in units of its view box.
const PAIR: (f64, f64) = (400.0, 190.0);
/// The same for more transactions.
const RING: (f64, f64) = (400.0, 330.0);
/// Distance of the nodes of a ring from its centre.
const RADIUS: f64 = 112.0;
/// Width of a letter of a name, and of an outcome; height of a node.
const LETTER: f64 = 9.0;
const SMALL_LETTER: f64 = 6.6;
const HEIGHT: f64 = 36.0;
/// Distance between an arrow and a node, and length of the head of an arrow.
const GAP: f64 = 4.0;
const HEAD: f64 = 11.0;

type Point = (f64, f64);

/// A node: its centre, and half of its width.
struct Node {
    at: Point,
    half: f64,
    name: String,
    outcome: &'static str,
}

/// Returns the cycle as an element `svg`; nothing if there is no cycle.
pub(super) fn cycle(explanation: &Explanation) -> String {
    let mut order: Vec<usize> = Vec::new();
    for it in &explanation.cycle {
        for at in [it.from, it.to] {
            if !order.contains(&at) {
                order.push(at);
            }
        }
    }
    if order.is_empty() {
        return String::new();
    }
    let (width, height) = if order.len() <= 2 { PAIR } else { RING };
    let nodes: Vec<Node> = { order.iter().enumerate() }
        .map(|(place, &it)| {
            let participant = &explanation.transactions[it];
            let outcome = match participant.outcome {
                "committed" => "",
                outcome => outcome,
            };
            let long = |text: &str, letter: f64| text.chars().count() as f64 * letter;
            let longest = long(&participant.name, LETTER).max(long(outcome, SMALL_LETTER));
            Node {
                at: position(place, order.len(), (width, height)),
                half: longest / 2.0 + 12.0,
                name: participant.name.clone(),
                outcome,
            }
        })
        .collect();
    let mut text = format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(&explanation.cycle_line())
    );
    let bend = match (order.len(), explanation.cycle.len()) {
        (_, 1) => 0.0,
        (2, _) => 76.0,
        _ => 34.0,
    };
    for it in &explanation.cycle {
        let node = |of: usize| order.iter().position(|&it| it == of).map(|it| &nodes[it]);
        let (Some(from), Some(to)) = (node(it.from), node(it.to)) else {
            continue;
        };
        let object = it
            .object
            .as_ref()
            .map(|it| format!(" {it}"))
            .unwrap_or_default();
        arrow(
            &mut text,
            (from, to),
            bend,
            it.kind,
            &format!("{}{object}", it.kind),
        );
    }
    for node in &nodes {
        draw(&mut text, node);
    }
    text + "</svg>\n"
}

/// Returns the centre of a node: side by side, or clockwise on a ring from the top on.
fn position(place: usize, count: usize, (width, height): (f64, f64)) -> Point {
    let middle = (width / 2.0, height / 2.0);
    if count <= 2 {
        let side: f64 = if place == 0 { -1.0 } else { 1.0 };
        return (side.mul_add(110.0, middle.0), middle.1);
    }
    let angle = TAU * (place as f64 / count as f64 - 0.25);
    (
        RADIUS.mul_add(angle.cos(), middle.0),
        RADIUS.mul_add(angle.sin(), middle.1),
    )
}

fn draw(text: &mut String, node: &Node) {
    let (x, y) = node.at;
    let height = height(node);
    let _ = writeln!(
        text,
        "<rect class=\"node\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" rx=\"9\"/>",
        x - node.half,
        y - height / 2.0,
        node.half * 2.0
    );
    let name = escaped(&node.name);
    let _ = match node.outcome.is_empty() {
        true => writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\">{name}</text>",
            y + 5.0
        ),
        false => writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\">{name}</text>\n<text class=\"small\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            y - 3.0,
            y + 15.0,
            escaped(node.outcome)
        ),
    };
}

fn height(node: &Node) -> f64 {
    if node.outcome.is_empty() {
        HEIGHT
    } else {
        HEIGHT + 12.0
    }
}

/// Draws a curve with a head and a label from one node to another one, to the left of its
/// direction.
fn arrow(text: &mut String, (from, to): (&Node, &Node), bend: f64, class: &str, label: &str) {
    let (dx, dy) = (to.at.0 - from.at.0, to.at.1 - from.at.1);
    let length = dx.hypot(dy).max(1.0);
    let side = (dy / length, -dx / length);
    let middle = ((from.at.0 + to.at.0) / 2.0, (from.at.1 + to.at.1) / 2.0);
    let control = (
        bend.mul_add(side.0, middle.0),
        bend.mul_add(side.1, middle.1),
    );
    let begin = edge(from, control, GAP);
    let tip = edge(to, control, GAP);
    let (x, y) = (tip.0 - control.0, tip.1 - control.1);
    let distance = x.hypot(y).max(1.0);
    let (x, y) = (x / distance, y / distance);
    let base = (tip.0 - HEAD * x, tip.1 - HEAD * y);
    let _ = writeln!(
        text,
        "<path class=\"{class}\" d=\"M {:.1} {:.1} Q {:.1} {:.1} {:.1} {:.1}\"/>",
        begin.0, begin.1, control.0, control.1, base.0, base.1
    );
    let wing = HEAD * 0.45;
    let _ = writeln!(
        text,
        "<polygon class=\"{class}\" points=\"{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\"/>",
        tip.0,
        tip.1,
        base.0 - wing * y,
        base.1 + wing * x,
        base.0 + wing * y,
        base.1 - wing * x
    );
    // The middle of the curve, and a distance beside it that the label needs.
    let on_curve = (
        (begin.0 + 2.0 * control.0 + base.0) / 4.0,
        (begin.1 + 2.0 * control.1 + base.1) / 4.0,
    );
    let beside = (label.chars().count() as f64 * LETTER / 2.0).mul_add(side.0.abs(), 14.0);
    let (x, y) = (
        beside.mul_add(side.0, on_curve.0),
        beside.mul_add(side.1, on_curve.1),
    );
    let _ = writeln!(
        text,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
        y + 5.0,
        escaped(label)
    );
}

/// Returns the point at which the line from the centre of a node towards `target` leaves it.
fn edge(node: &Node, target: Point, gap: f64) -> Point {
    let (dx, dy) = (target.0 - node.at.0, target.1 - node.at.1);
    let (width, height) = (node.half + gap, height(node) / 2.0 + gap);
    let part = (width / dx.abs().max(1e-6))
        .min(height / dy.abs().max(1e-6))
        .min(1.0);
    (part.mul_add(dx, node.at.0), part.mul_add(dy, node.at.1))
}
