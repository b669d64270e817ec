//! The arguments of a compiler: the sources to compile and the inputs to link.

use super::BuildError;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The endings of names of source files.
const SOURCES: [&str; 9] = ["c", "C", "cc", "cp", "cpp", "cxx", "c++", "i", "ii"];
/// Options whose value is the next argument.
const WITH_VALUE: [&str; 27] = [
    "-o",
    "-I",
    "-L",
    "-l",
    "-D",
    "-U",
    "-A",
    "-B",
    "-T",
    "-u",
    "-z",
    "-e",
    "-include",
    "-imacros",
    "-isystem",
    "-idirafter",
    "-iquote",
    "-iprefix",
    "-iwithprefix",
    "-isysroot",
    "-MF",
    "-MT",
    "-MQ",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "--param",
];
const NOT_LINKED: [&str; 5] = ["-c", "-S", "-E", "-M", "-MM"];

/// One argument, or an option with its value.
enum Part<'a> {
    Source(&'a OsStr),
    /// Any other argument that is not an option: an object, a library, a linker script.
    File(&'a OsStr),
    /// The output file, with the option before it.
    Output(&'a [OsString]),
    Option(&'a [OsString]),
}

pub(super) struct Arguments<'a> {
    all: &'a [OsString],
    parts: Vec<Part<'a>>,
}

/// An input of the linker.
pub(super) enum Input<'a> {
    Source(&'a OsStr),
    /// An object, a library or an option, in its place.
    Other(&'a OsStr),
}

impl<'a> Arguments<'a> {
    pub fn parse(all: &'a [OsString]) -> Result<Self, BuildError> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < all.len() {
            let text = all[at].to_string_lossy();
            let refused = |hint| {
                Err(BuildError::Argument {
                    argument: all[at].clone(),
                    hint,
                })
            };
            if text.starts_with("-fsanitize") {
                return refused(
                    "a sanitizer and the recorder cannot instrument the same program; leave it out",
                );
            }
            if ["-static", "--static", "-static-pie"].contains(&&*text) {
                return refused(
                    "the recorder replaces functions of the system's shared libraries, so they \
                     must not be linked statically; leave it out",
                );
            }
            if text.starts_with("-x") {
                return refused(
                    "give the source file an extension that names its language, such as `.c`",
                );
            }
            if text.starts_with('@') {
                return refused("write its arguments on the command line");
            }
            let with_value = WITH_VALUE.contains(&&*text) && at + 1 < all.len();
            let here = &all[at..=at + usize::from(with_value)];
            at += here.len();
            parts.push(if text.starts_with("-o") && !text.starts_with("-openmp") {
                Part::Output(here)
            } else if text.starts_with('-') {
                Part::Option(here)
            } else {
                let ending = Path::new(&here[0]).extension().and_then(OsStr::to_str);
                match ending {
                    Some(ending) if SOURCES.contains(&ending) => Part::Source(&here[0]),
                    _ => Part::File(&here[0]),
                }
            });
        }
        Ok(Self { all, parts })
    }

    /// Returns all arguments, unchanged.
    pub fn all(&self) -> impl Iterator<Item = &'a OsStr> + use<'a> {
        self.all.iter().map(OsString::as_os_str)
    }

    /// Returns whether there is an input; without one, the compiler is only queried.
    pub fn has_inputs(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, Part::Source(_) | Part::File(_)))
    }

    pub fn compiles_only(&self) -> bool {
        self.all
            .iter()
            .any(|argument| NOT_LINKED.iter().any(|option| argument == option))
    }

    pub fn makes_library(&self) -> bool {
        self.all.iter().any(|argument| argument == "-shared")
    }

    /// Returns whether other objects are linked into one object, to be linked again.
    pub fn makes_object(&self) -> bool {
        self.all.iter().any(|argument| argument == "-r")
    }

    /// Returns whether OpenMP is used with threads: `-fopenmp-simd` has none.
    pub fn has_open_mp(&self) -> bool {
        self.all.iter().any(|argument| {
            let text = argument.to_string_lossy();
            text == "-fopenmp" || text.starts_with("-fopenmp=")
        })
    }

    /// Returns the options for the compilation of a source. Those for the linker are harmless
    /// there.
    pub fn options(&self) -> impl Iterator<Item = &'a OsStr> {
        let options = self.parts.iter().filter_map(|part| match part {
            Part::Option(option) => Some(*option),
            _ => None,
        });
        options.flatten().map(OsString::as_os_str)
    }

    /// Returns the objects, libraries and linker scripts that are named as files.
    pub fn files(&self) -> impl Iterator<Item = &'a OsStr> {
        self.parts.iter().filter_map(|part| match part {
            Part::File(file) => Some(*file),
            _ => None,
        })
    }

    /// Returns the linker's inputs in order: sources and all other arguments, with the output file.
    pub fn inputs(&self) -> impl Iterator<Item = Input<'a>> {
        self.parts.iter().flat_map(|part| match part {
            Part::Source(source) => vec![Input::Source(source)],
            Part::File(file) => vec![Input::Other(file)],
            Part::Output(option) | Part::Option(option) => {
                let parts = option.iter().map(OsString::as_os_str);
                parts.map(Input::Other).collect()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn joined<'a>(parts: impl Iterator<Item = &'a OsStr>) -> String {
        parts
            .map(|part| part.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn sources_are_told_from_the_rest() {
        let all = words("-O3 a.c -I include -D N=3 b.cpp other.o -o out -lm -Wl,-z,now");
        let arguments = Arguments::parse(&all).unwrap();
        assert!(arguments.has_inputs() && !arguments.compiles_only() && !arguments.makes_library());
        assert_eq!(
            joined(arguments.options()),
            "-O3 -I include -D N=3 -lm -Wl,-z,now"
        );
        let linked = arguments.inputs().map(|input| match input {
            Input::Source(_) => OsStr::new("SOURCE"),
            Input::Other(other) => other,
        });
        let linked = joined(linked);
        assert_eq!(
            linked,
            "-O3 SOURCE -I include -D N=3 SOURCE other.o -o out -lm -Wl,-z,now"
        );
    }

    #[test]
    fn what_only_compiles_or_only_asks_is_known() {
        let [compiles, asks, library] = ["-c a.c", "--version", "-shared a.o -o a.so"].map(words);
        assert!(Arguments::parse(&compiles).unwrap().compiles_only());
        assert!(!Arguments::parse(&asks).unwrap().has_inputs());
        let library = Arguments::parse(&library).unwrap();
        assert!(library.makes_library() && !library.makes_object());
        let open_mp = words("-O2 -fopenmp a.c");
        assert!(Arguments::parse(&open_mp).unwrap().has_open_mp());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in [
            "-fsanitize=address a.c",
            "-x c -",
            "@file",
            "-static a.c",
            "-O2 a.o -static-pie",
        ] {
            assert!(Arguments::parse(&words(text)).is_err(), "{text}");
        }
        let shared = words("-static-libgcc -static-libstdc++ a.cpp");
        assert!(Arguments::parse(&shared).is_ok());
    }
}
