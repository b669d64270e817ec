use super::*;
use crate::graph::Label;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn graph_of(text: &str) -> Result<Graph, GraphError> {
    read(std::io::Cursor::new(text.to_owned()), Path::new("list"))
}

/// Returns the edges, by the labels of their vertices.
fn edges_of(graph: &Graph) -> BTreeSet<(String, String)> {
    let vertices = 0..graph.vertices();
    let of = |to| graph.sources_of(to).iter().map(move |from| (*from, to));
    let named = |(from, to)| {
        let name = |vertex| graph.label(vertex).to_string();
        (name(from), name(to))
    };
    vertices.flat_map(of).map(named).collect()
}

#[test]
fn numbers_keep_their_order_and_names_come_as_they_come() {
    let graph = graph_of("# c\n\n%c\n30 10\r\n\t10   20 0.5\n20 30 # c\n30 10\n").unwrap();
    assert_eq!(graph.labels(), &Labels::Numbers(vec![10, 20, 30]));
    assert_eq!(graph.sources_of(0), [2]);
    assert_eq!(graph.edges(), 3);
    assert!(graph.has_more_than_edges());
    let graph = graph_of("5 6\n6 7 # 5\n7 5").unwrap();
    assert_eq!(graph.labels(), &Labels::Range { first: 5 });
    assert!(!graph.has_more_than_edges());
    // Far apart.
    let graph = graph_of("4294967295 0\n0 4000000000\n").unwrap();
    let far = vec![0, 4_000_000_000, u32::MAX];
    assert_eq!(graph.labels(), &Labels::Numbers(far));
    // One label that is not a number makes all labels names.
    for odd in ["x", "07", "-1", "1.0", "4294967296", "\u{e9}"] {
        let graph = graph_of(&format!("7 3\n3 {odd}\n{odd} 7\n")).unwrap();
        let expected = [("7", "3"), ("3", odd), (odd, "7")];
        let expected = expected.map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(edges_of(&graph), BTreeSet::from(expected), "{odd}");
        assert_eq!(graph.label(0), Label::Name(b"7"));
    }
}

#[test]
fn separators_lead_to_the_same_graph() {
    let expected = graph_of("1 2\n2 3\n").unwrap();
    for list in [
        "1,2\n2,3\n",
        "1, 2\r\n2 ,3\r\n",
        "1;2\n2;3\n",
        "1\t2\n2\t3\n",
        "1\t2\r2\t3\r",
        "1\t2\r\r2\t3",
        "\"1\",\"2\"\n2,\"3\"\n",
        "source,target\n1,2\n2,3\n",
        "from to\n1 2\n2 3\n",
        "% c\n\nnode_1\tnode_2\n1\t2\n2\t3\n",
    ] {
        let graph = graph_of(list).unwrap();
        assert_eq!(edges_of(&graph), edges_of(&expected), "{list:?}");
        assert_eq!(graph.labels(), expected.labels(), "{list:?}");
    }
    let graph =
        graph_of("from,to,km\n\"Paris, Texas\",New York,1\nNew York,\"a \"\"b\"\"\",\n").unwrap();
    let expected = [("Paris, Texas", "New York"), ("New York", "a \"b\"")];
    let expected = expected.map(|(from, to)| (from.to_owned(), to.to_owned()));
    assert_eq!(edges_of(&graph), BTreeSet::from(expected));
    let separated = |separator| {
        let mut lines = Lines::of(&b"a,b c;d e\n"[..], Path::new("list")).unwrap();
        let graph = read_lines(&mut lines, Some(separator)).unwrap();
        edges_of(&graph).pop_first().unwrap()
    };
    let expected = [
        (Separator::WhiteSpace, ("a,b", "c;d")),
        (Separator::Comma, ("a", "b c;d e")),
        (Separator::Semicolon, ("a,b c", "d e")),
    ];
    for (separator, (from, to)) in expected {
        assert_eq!(separated(separator), (from.into(), to.into()));
    }
}

#[test]
fn a_header_is_no_edge() {
    let first = |list: &str| {
        let graph = graph_of(list).unwrap();
        (
            graph.first_line().clone(),
            graph.edges(),
            graph.label(0).to_string(),
        )
    };
    let header = |line, text: &str| FirstLine::Header {
        line,
        text: text.into(),
    };
    for (list, line, text, edges, vertex) in [
        ("Source,Target\na,b\n", 1, "Source,Target", 1, "a"),
        (
            "# c\n FromNodeId\tToNodeId \n1\t2\n",
            2,
            "FromNodeId\tToNodeId",
            1,
            "1",
        ),
        ("id_1,id_2\n1,2\n2,3\n", 1, "id_1,id_2", 2, "1"),
        ("a b\n007 -1\n99999999999 1.5\n", 1, "a b", 2, "007"),
    ] {
        assert_eq!(
            first(list),
            (header(line, text), edges, vertex.into()),
            "{list}"
        );
    }
    // Edges, as far as can be told.
    for (list, edges, vertex) in [
        ("a b\n", 1, "a"),
        ("a b\nb a\n", 2, "a"),
        ("a b\n1 2\nb 1\n", 3, "a"),
        ("a b\n1 2\n01 2\n2 a\n", 4, "a"),
        ("a 1\n1 2\n", 2, "a"),
        ("1 a\n1 2\n", 2, "1"),
    ] {
        assert_eq!(
            first(list),
            (FirstLine::Edge, edges, vertex.into()),
            "{list}"
        );
    }
    let (perhaps, edges, _) = first(
        "person a,\"person b\"\nc,d\nd,c\n"
            .replace("person a", "person")
            .as_str(),
    );
    let text = "person,\"person b\"".into();
    assert_eq!(
        (perhaps, edges),
        (FirstLine::PerhapsHeader { line: 1, text }, 3)
    );
}

#[test]
fn names_keep_their_order_behind_a_first_line_that_is_an_edge_after_all() {
    let graph = graph_of("a b\n7 8\n8 07\n7 a\n").unwrap();
    let names: Vec<String> = (0..5)
        .map(|vertex| graph.label(vertex).to_string())
        .collect();
    assert_eq!(names, ["a", "b", "7", "8", "07"]);
    assert_eq!(graph.sources_of(0), [2]);
    assert_eq!(graph.sources_of(1), [0]);
}

#[test]
fn mistakes_are_told_with_their_lines() {
    for (list, told) in [
        ("# none\n", "list has no edge and no vertex"),
        ("source,target\n", "list has no edge and no vertex"),
        (
            "1 2\n\n1,2\n",
            "list, line 3: the line has only the field \"1,2\": an edge is two vertices with white space",
        ),
        ("1 # 2\n", "list, line 1: the line has only the field \"1\""),
        (
            "1\n",
            "list, line 1: the line has only the field \"1\": an edge is two vertices with white space, a comma",
        ),
        (
            "1,2\n1 2\n",
            "list, line 2: the line has only the field \"1 2\": an edge is two vertices with a comma",
        ),
        ("1\t2\n1 2\n", "vertices with a tab"),
        (
            "1 2\n1, 2\n",
            "list, line 2: the separator of fields in \"1,\" is ambiguous",
        ),
        (
            "1 2\nNew York\tBoston\n",
            "list, line 2: the separator of fields",
        ),
        (
            "New York,Boston\n",
            "list, line 1: the separator of fields in \"New York,Boston\" is ambiguous: choose it \
             by --separator",
        ),
        (
            "1,2\n,3\n",
            "list, line 2: one of the line's first two fields is empty",
        ),
        (
            "1,2\n1,\n",
            "list, line 2: one of the line's first two fields is empty",
        ),
        (
            "1,2\n1,\"a\nb\"\n",
            "list, line 2: \"\\\"a\" begins with a quote",
        ),
        (
            "1,2,\"a\nb\"\n",
            "list, line 1: \"\\\"a\" begins with a quote",
        ),
        (
            "1,2\n\"1\"0,2\n",
            "list, line 2: \"1\" has text after its closing quote",
        ),
        (
            "1,2\n1,3 # c\n",
            "list, line 2: \"3 # c\" is ambiguous, since it may be a name",
        ),
        (
            "source,target\n1,2\nsource,target\n1,3\n",
            "list, line 3: \"source,target\" repeats the header",
        ),
        (
            "id_1,id_2\n1,2\nid_1,id_2\n",
            "list, line 3: \"id_1,id_2\" repeats the header",
        ),
        (
            ",source,target\n0,1,2\n",
            "in column 2 and its target in column 3",
        ),
        (
            "target,source\n1,2\n",
            "in column 2 and its target in column 1",
        ),
        (
            "id source target\n0 1 2\n",
            "in column 2 and its target in column 3",
        ),
        (
            "1 2\n1 3\r2 3\n",
            "list, line 2: the line contains a carriage return",
        ),
        (
            "1 2\n1 3 0.5\r2 3 0.5\n",
            "list, line 2: the line contains a carriage return",
        ),
        (
            "1 2\n# c\r2 3\n",
            "list, line 2: the line contains a carriage return",
        ),
        (
            "# c\r2 3\n4 5\r",
            "list, line 2: the line contains the byte 0x0A",
        ),
        (
            "1 2\n1 \x002\n",
            "list, line 2: the line contains the byte 0x00",
        ),
        (
            "a;b\nc;d\x0Be\n",
            "list, line 2: the line contains the byte 0x0B",
        ),
        (
            "a,b\nc\x0Cd,e\n",
            "list, line 2: the line contains the byte 0x0C",
        ),
        (
            "1 2\n1 2 \0\n",
            "list, line 2: the line contains the byte 0x00",
        ),
        (
            "a b\na \u{1b}[31m\n",
            "list, line 2: the line contains the byte 0x1B",
        ),
        (
            "%MatrixMarket matrix coordinate real general\n3 3 2\n",
            "list, line 1: \"%MatrixMarket matrix coordinate real general\" is almost",
        ),
        (
            "\n%%MatrixMarket matrix coordinate real general\n3 3 2\n",
            "list, line 2: \"%%MatrixMarket",
        ),
        ("3 4\n2 3 2\n1 3 1\n1 2\n", "list is a METIS graph"),
    ] {
        let found = graph_of(list).map(|graph| edges_of(&graph));
        let found = found.unwrap_err().to_string();
        assert!(found.contains(told), "{list:?}: {found}");
    }
    let latin = read(&b"a b\na caf\xE9\n"[..], Path::new("list"))
        .unwrap_err()
        .to_string();
    assert!(
        latin.contains("list, line 2: a name in the line is not UTF-8, because of the byte 0xE9"),
        "{latin}"
    );
    // Comments and fields after the vertices are not checked.
    assert!(read(&b"# caf\xE9\na b caf\xE9\n"[..], Path::new("list")).is_ok());
}

proptest! {
    #[test]
    fn any_bytes_are_a_graph_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(std::io::Cursor::new(bytes), Path::new("bytes"));
    }

    #[test]
    fn almost_a_list_is_a_graph_or_an_error(text in "([0-9a#% ,;\"\t\r\n-]|4294967295|\n){0,80}") {
        if let Ok(graph) = graph_of(&text) {
            prop_assert!(graph.sources().iter().all(|source| *source < graph.vertices()));
        }
    }

    #[test]
    fn what_is_written_is_read(
        edges in prop::collection::vec((0u32..50, 0u32..50), 1..100),
        spread in prop::sample::select(vec![1u32, 3, 80_000_000]),
        names: bool,
        separator in prop::sample::select(vec!["\t", " ", "  ", ",", " , ", ";"]),
    ) {
        let name = |vertex: u32| match names {
            true => format!("v{vertex}"),
            false => (vertex * spread).to_string(),
        };
        let named: Vec<_> = edges.iter().map(|(a, b)| (name(*a), name(*b))).collect();
        let text: String = named.iter().map(|(a, b)| format!("{a}{separator}{b}\n")).collect();
        let graph = graph_of(&text).unwrap();
        prop_assert_eq!(edges_of(&graph), named.into_iter().collect::<BTreeSet<_>>());
    }
}
