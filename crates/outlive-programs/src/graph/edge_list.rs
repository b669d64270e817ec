//! Edge lists: a line for each edge, with its source and its target and a separator between them.
//!
//! ```text
//! # a comment, also with %            source,target,weight
//! 1 2                                 "New York",Boston,1
//! 2   3   0.5      not used           Boston,"Paris, Texas",2
//! 3 1              # a comment
//! ```
//!
//! # Separators
//! The whole list has one separator: white space (any run of spaces and tabs), one tab, one comma
//! or one semicolon. The caller may choose the [`Separator`]. Otherwise the text between the first
//! two fields of the first line with fields decides:
//!
//! * a comma or a semicolon, with or without white space around it: that one;
//! * a single tab: a tab, so names may have spaces in them;
//! * other white space: white space.
//!
//! If the text after the second field does not fit this separator, the line is ambiguous, which is
//! an error: `New York,Boston` may be separated by the space or by the comma. If both fields are
//! numbers, spaces and tabs may be mixed, and are white space. All later lines have the same
//! separator. A line with a single field is an error. In a list that was decided to be separated by
//! white space, so is a name with a comma or a semicolon in it, or one with a tab on one side and a
//! space on the other.
//!
//! # Quotes and comments
//! A field that begins with `"` ends with the next one, and `""` in it is a quote (RFC 4180). It
//! must end in its line. White space around fields does not count. A line that begins with `#` or
//! `%` is a comment. If white space separates, a field that begins with one of these begins a
//! comment too.
//!
//! # Vertices and the header
//! Empty lines are skipped; fields after the first two are not used. If all vertices are numbers
//! less than 2^32, written in the usual way (no sign, no leading zero), they are ordered by number;
//! otherwise all are names, in the order in which they first occur. So `7` and `07` are two
//! vertices. Names are UTF-8 without control characters. A graph has only the vertices of its
//! edges: a number that does not occur in the list is not a vertex.
//!
//! The first line is a header and not an edge if its first two fields are a usual pair of words
//! (`source,target`, for example), in upper or lower case and with any punctuation; or if they are
//! not numbers, and all other lines have only numbers. In a list of names any other header cannot
//! be distinguished from an edge: if neither of its names occurs again, the graph [reports
//! that](super::FirstLine).
//!
//! A list is refused if its first line gives the number of the following lines and half the number
//! of their fields, as that of a METIS graph does, unless the caller chooses a separator.

use super::error::shown;
use super::fields::{Fields, count_plain, is_blank, two_numbers};
use super::gaps::close_gaps;
use super::header::{is_number, usual_columns};
use super::labels::Numbering;
use super::lines::{Lines, number};
use super::{
    FirstLine, Graph, GraphError, Labels, Mistake, Notes, Separator, Vertex, build, matrix_market,
};
use std::io::BufRead;
use std::path::Path;

/// Reads an edge list, plain or [compressed](crate::compressed), called `path` in errors.
///
/// ```
/// use outlive_programs::graph::edge_list;
///
/// let list = "# who links to whom\nhome about\nabout home\nhome news\n";
/// let graph = edge_list::read(list.as_bytes(), "links".as_ref())?;
/// assert_eq!((graph.vertices(), graph.edges()), (3, 3));
/// assert_eq!(graph.label(2).to_string(), "news");
/// # Ok::<(), outlive_programs::graph::GraphError>(())
/// ```
///
/// # Errors
/// If it cannot be read, is not an edge list, or has no edge.
pub fn read(reader: impl BufRead + 'static, path: &Path) -> Result<Graph, GraphError> {
    read_lines(&mut Lines::of(reader, path)?, None)
}

pub(super) fn read_lines(
    lines: &mut Lines<impl BufRead>,
    asked: Option<Separator>,
) -> Result<Graph, GraphError> {
    let Some(mut list) = first_line(lines, asked)? else {
        let path = lines.path().into();
        return Err(GraphError::Empty { path });
    };
    while let Some(line) = lines.next()? {
        if let Reading::Numbers = list.reading
            && let Some((edge, rest)) = two_numbers(line, list.separator)
            && let Some(more) = count_plain(rest)
        {
            list.more += more;
            list.edges.push(edge);
            continue;
        }
        if let Err(wrong) = list.read(line) {
            return Err(wrong.within(lines));
        }
    }
    list.graph(lines.path())
}

/// Reads up to the first line with fields, and begins the list by it. Returns `None` if there is
/// none.
fn first_line(
    lines: &mut Lines<impl BufRead>,
    asked: Option<Separator>,
) -> Result<Option<List>, GraphError> {
    while let Some(line) = lines.next()? {
        if matrix_market::is_almost_banner(line) {
            let banner = Mistake::Banner(shown(line));
            return Err(lines.mistake(banner));
        }
        match List::begin(line, asked) {
            Ok(None) => {}
            Ok(Some(mut list)) => {
                list.first.line = lines.number();
                return Ok(Some(list));
            }
            Err(wrong) => return Err(wrong.within(lines)),
        }
    }
    Ok(None)
}

/// The reason why a line cannot be read.
enum Refusal {
    Line(Mistake),
    Graph(GraphError),
}

impl Refusal {
    /// Returns the error for the last line of `lines` that was read.
    fn within(self, lines: &Lines<impl BufRead>) -> GraphError {
        match self {
            Self::Line(mistake) => lines.mistake(mistake),
            Self::Graph(error) => error,
        }
    }
}

impl From<Mistake> for Refusal {
    fn from(mistake: Mistake) -> Self {
        Self::Line(mistake)
    }
}

impl From<GraphError> for Refusal {
    fn from(error: GraphError) -> Self {
        Self::Graph(error)
    }
}

/// The labels of the vertices of a list that is being read.
enum Reading {
    /// Numbers, which are those in the edges.
    Numbers,
    /// Names; the edges have their numbers.
    Names(Numbering),
}

/// The first line with fields.
struct First {
    line: u64,
    text: String,
    /// Its first two fields.
    names: [Vec<u8>; 2],
    /// The columns that a usual pair of words names in it.
    columns: Option<[usize; 2]>,
    is: FirstIs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstIs {
    Header,
    /// A header, unless another line has something other than numbers.
    HeaderBeforeNumbers,
    /// An edge between two names.
    EdgeOfNames,
    Edge,
}

/// A list that is being read.
struct List {
    separator: Separator,
    /// Whether the first line has decided the separator.
    is_decided: bool,
    first: First,
    /// The number of fields of the first line that are not empty.
    first_fields: u64,
    edges: Vec<[Vertex; 2]>,
    reading: Reading,
    /// The number of fields of the other lines after their first two.
    more: u64,
}

impl List {
    /// Begins a list by `line`. Returns `None` if that is empty or a comment.
    fn begin(line: &[u8], asked: Option<Separator>) -> Result<Option<Self>, Refusal> {
        if is_blank(line)? {
            return Ok(None);
        }
        let separator = match asked {
            Some(separator) => separator,
            None => Separator::decide(line)?.ok_or_else(|| Mistake::OneField {
                field: shown(line.trim_ascii()),
                separator: "white space, a comma, a semicolon or a tab",
            })?,
        };
        let mut fields = Fields::of(line, separator);
        let mut all = Vec::new();
        while let Some(field) = fields.next()? {
            field.check_unused()?;
            all.push(field.bytes.into_owned());
        }
        let columns = usual_columns(&all);
        let are_names = all.iter().take(2).all(|field| !is_number(field));
        let is = match columns {
            Some([0, 1]) => FirstIs::Header,
            Some(_) if separator != Separator::WhiteSpace => FirstIs::Header,
            _ if all.len() >= 2 && are_names => FirstIs::HeaderBeforeNumbers,
            _ => FirstIs::Edge,
        };
        let text = shown(line.trim_ascii());
        let mut list = Self {
            separator,
            is_decided: asked.is_none(),
            first_fields: all.iter().filter(|field| !field.is_empty()).count() as u64,
            first: First {
                line: 0,
                text,
                names: [0, 1].map(|at| all.get(at).cloned().unwrap_or_default()),
                columns,
                is,
            },
            edges: Vec::new(),
            reading: Reading::Numbers,
            more: 0,
        };
        match is {
            FirstIs::Header => list.first.check_columns()?,
            // Also checks that the fields can be names.
            _ => list.read(line)?,
        }
        Ok(Some(list))
    }

    /// Reads a line of any kind.
    fn read(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let mut fields = Fields::of(line, self.separator);
        let Some(from) = fields.next()? else {
            return Ok(());
        };
        let Some(to) = fields.next()? else {
            return Err(Refusal::Line(Mistake::OneField {
                field: shown(&from.bytes),
                separator: self.separator.shown(),
            }));
        };
        let is_doubtful = self.is_decided && self.separator == Separator::WhiteSpace;
        let mut is_mixed = false;
        let mut behind = fields.next()?;
        if let Some(third) = &behind {
            is_mixed = is_doubtful && to.is_between_tab_and_space(third);
        }
        let has_begun = self.first.line > 0;
        while let Some(field) = behind {
            field.check_unused()?;
            self.more += u64::from(has_begun && !field.bytes.is_empty());
            behind = fields.next()?;
        }
        let usual = [&from, &to].map(|field| as_usual(&field.bytes));
        if let (Reading::Numbers, [Some(from), Some(to)]) = (&self.reading, usual) {
            self.edges.push([from, to]);
            return Ok(());
        }
        for field in [&from, &to] {
            field.check_name(self.separator, self.is_decided)?;
        }
        let are_numbers = is_number(&from.bytes) && is_number(&to.bytes);
        if is_mixed && !are_numbers {
            return Err(Refusal::Line(Mistake::Ambiguous(shown(line))));
        }
        match self.first.is {
            FirstIs::Header | FirstIs::HeaderBeforeNumbers if !has_begun => return Ok(()),
            FirstIs::Header | FirstIs::HeaderBeforeNumbers
                if [&from, &to].map(|field| &field.bytes[..]) == self.first.names()
                    && !(self.first.is == FirstIs::HeaderBeforeNumbers
                        && self.edges.is_empty()) =>
            {
                return Err(Refusal::Line(Mistake::HeaderAgain(shown(line))));
            }
            FirstIs::HeaderBeforeNumbers if !are_numbers => self.first_is_edge()?,
            _ => {}
        }
        let names = self.names()?;
        let edge = [names.number(&from.bytes)?, names.number(&to.bytes)?];
        self.edges.push(edge);
        Ok(())
    }

    /// Returns the names of the vertices. If all vertices were numbers so far, they become names.
    fn names(&mut self) -> Result<&mut Numbering, GraphError> {
        if let Reading::Numbers = self.reading {
            let mut names = Numbering::new();
            for vertex in self.edges.iter_mut().flatten() {
                *vertex = names.number(vertex.to_string().as_bytes())?;
            }
            self.reading = Reading::Names(names);
        }
        match &mut self.reading {
            Reading::Names(names) => Ok(names),
            Reading::Numbers => unreachable!("the numbers were replaced by names"),
        }
    }

    /// Makes the first line an edge, before all others that have been read. Those have only
    /// numbers, so none of its names.
    fn first_is_edge(&mut self) -> Result<(), GraphError> {
        self.names()?;
        self.first.is = FirstIs::EdgeOfNames;
        let mut names = Numbering::new();
        let [from, to] = self.first.names();
        let first = [names.number(from)?, names.number(to)?];
        let before = names.len();
        if let Reading::Names(others) = std::mem::replace(&mut self.reading, Reading::Numbers) {
            let others = others.into_names();
            for other in 0..others.len() as u32 {
                names.number(others.get(other))?;
            }
        }
        for vertex in self.edges.iter_mut().flatten() {
            *vertex += before;
        }
        self.edges.insert(0, first);
        self.reading = Reading::Names(names);
        Ok(())
    }

    /// Returns whether the first line describes the others as that of a METIS graph does: N
    /// vertices and M edges, then N lines with 2M vertices, and not two in each.
    fn is_metis(&self) -> bool {
        let [vertices, edges] = [0, 1].map(|at| number(&self.first.names[at]));
        let others = self.edges.len() as u64 - 1;
        self.is_decided
            && self.separator == Separator::WhiteSpace
            && self.first_fields == 2
            && self.more > 0
            && vertices == Some(others)
            && edges.and_then(|edges| edges.checked_mul(2)) == Some(2 * others + self.more)
    }

    fn graph(mut self, path: &Path) -> Result<Graph, GraphError> {
        if self.first.is == FirstIs::HeaderBeforeNumbers && self.edges.is_empty() {
            self.first_is_edge()?;
        }
        if self.edges.is_empty() {
            return Err(GraphError::Empty { path: path.into() });
        }
        if self.is_metis() {
            return Err(GraphError::Metis { path: path.into() });
        }
        let (line, text) = (self.first.line, self.first.text.clone());
        let is_alone = |edges: &[[Vertex; 2]]| {
            let names = edges[0];
            edges.len() > 1
                && !edges[1..]
                    .iter()
                    .flatten()
                    .any(|vertex| names.contains(vertex))
        };
        let first_line = match self.first.is {
            FirstIs::Header | FirstIs::HeaderBeforeNumbers => {
                let columns = self.first.check_columns();
                columns.map_err(|mistake| GraphError::Line {
                    path: path.into(),
                    line,
                    mistake,
                })?;
                FirstLine::Header { line, text }
            }
            FirstIs::EdgeOfNames if is_alone(&self.edges) => {
                FirstLine::PerhapsHeader { line, text }
            }
            FirstIs::EdgeOfNames | FirstIs::Edge => FirstLine::Edge,
        };
        let notes = Notes {
            has_more: self.more > 0 || self.first_fields > 2,
            first_line,
        };
        let mut edges = self.edges;
        let (vertices, labels) = match self.reading {
            Reading::Names(names) => {
                let names = names.into_names();
                (names.len() as u32, Labels::Names(names))
            }
            Reading::Numbers => close_gaps(&mut edges)?,
        };
        edges.shrink_to_fit();
        let (count, held) = (edges.len() as u64, size_of_val(&edges[..]) as u64);
        build::refuse_too_large(vertices.into(), count, held)?;
        build::build(vertices, || edges.iter().copied(), labels, notes)
    }
}

impl First {
    fn names(&self) -> [&[u8]; 2] {
        let [from, to] = &self.names;
        [from, to]
    }

    /// Returns an error if the header names other columns than the first two.
    fn check_columns(&self) -> Result<(), Mistake> {
        match self.columns {
            None | Some([0, 1]) => Ok(()),
            Some([from, to]) => Err(Mistake::Columns {
                header: self.text.clone(),
                from: from + 1,
                to: to + 1,
            }),
        }
    }
}

/// Returns the number in `field`, if it is written in the usual way.
#[inline]
fn as_usual(field: &[u8]) -> Option<u32> {
    if field.first() == Some(&b'0') && field.len() > 1 {
        return None;
    }
    number(field).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests;
