//! Builds real programs so that they can be recorded as [traces](crate::trace).
//!
//! C and C++ are compiled with the instrumentation of `-fsanitize=thread`, and linked with a runtime of ours instead of
//! the sanitizer's, whose source is compiled along. A program that was built so runs as ever; with `OUTLIVE_TRACE=FILE`
//! in its environment, it writes a trace. `docs/recording.md` says how, and what is not recorded.

mod arguments;
mod unseen;

use arguments::{Arguments, Input};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The runtime: `recorder.c` includes the others.
const RUNTIME: [(&str, &str); 11] = [
    ("recorder.c", include_str!("../../recorder/recorder.c")),
    ("state.h", include_str!("../../recorder/state.h")),
    ("stream.h", include_str!("../../recorder/stream.h")),
    ("heap.h", include_str!("../../recorder/heap.h")),
    ("access.h", include_str!("../../recorder/access.h")),
    ("signals.h", include_str!("../../recorder/signals.h")),
    ("atomics.h", include_str!("../../recorder/atomics.h")),
    ("sync.h", include_str!("../../recorder/sync.h")),
    ("threads.h", include_str!("../../recorder/threads.h")),
    ("c11.h", include_str!("../../recorder/c11.h")),
    ("life.h", include_str!("../../recorder/life.h")),
];

/// For code that is recorded. What would write to memory without being seen is left to calls, which are seen.
const INSTRUMENTED: [&str; 8] = [
    "-fsanitize=thread",
    "-fno-lto",
    "-fno-builtin-memcpy",
    "-fno-builtin-memmove",
    "-fno-builtin-memset",
    "-fno-builtin-bcopy",
    "-fno-builtin-bzero",
    "-fno-tree-loop-distribute-patterns",
];
/// Volatile accesses are told apart, since programs wait for one another by them. Under its inner names, as in headers of C++ and of checked
/// functions, a copy is done in place, without being announced, if all sizes are known. So the room that is there is one that the
/// compiler does not know, which always suffices; as an expression, not by a function, it may stand wherever the copy may.
const GCC: [&str; 9] = [
    "--param",
    "tsan-distinguish-volatile=1",
    "-Wno-variadic-macros",
    "-D__builtin_memcpy(...)=__builtin___memcpy_chk(__VA_ARGS__,0)",
    "-D__builtin_memmove(...)=__builtin___memmove_chk(__VA_ARGS__,0)",
    "-D__builtin_memset(...)=__builtin___memset_chk(__VA_ARGS__,0)",
    "-D__builtin___memcpy_chk(...)=__builtin___memcpy_chk(__VA_ARGS__+(__SIZE_TYPE__)__builtin_frame_address(0))",
    "-D__builtin___memmove_chk(...)=__builtin___memmove_chk(__VA_ARGS__+(__SIZE_TYPE__)__builtin_frame_address(0))",
    "-D__builtin___memset_chk(...)=__builtin___memset_chk(__VA_ARGS__+(__SIZE_TYPE__)__builtin_frame_address(0))",
];
const CLANG: [&str; 3] = [
    "-mllvm",
    "-tsan-distinguish-volatile=1",
    "-Wno-ignored-optimization-argument",
];
/// For the runtime itself, which must not call what it replaces.
const PLAIN: [&str; 9] = [
    "-x",
    "c",
    "-O2",
    "-w",
    "-fPIE",
    "-fexceptions",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-c",
];
const WRAPPED: &str = "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset,--wrap=bcopy,--wrap=bzero,\
    --wrap=__memcpy_chk,--wrap=__memmove_chk,--wrap=__memset_chk";
const LIBRARIES: [&str; 2] = ["-lpthread", "-ldl"];

/// Why a program was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No compiler was named.
    #[error(
        "no compiler was named; a whole command is wanted, such as `cc -O3 program.c -o program -lpthread`"
    )]
    Empty,
    /// A command of which it is known that it is not a compiler of C or C++.
    #[error("`{}` is not a compiler of C or C++; {hint}", .command.to_string_lossy())]
    NoCompiler {
        /// Which one.
        command: OsString,
        /// What to do about it.
        hint: &'static str,
    },
    /// An argument that does not go together with recording.
    #[error("a program cannot be recorded with `{}`; {hint}", .argument.to_string_lossy())]
    Argument {
        /// Which one.
        argument: OsString,
        /// What to do about it.
        hint: &'static str,
    },
    /// The compiler did not start.
    #[error("the compiler `{}` did not start: {source}", .compiler.to_string_lossy())]
    Start {
        /// The compiler.
        compiler: OsString,
        /// What the operating system said.
        source: io::Error,
    },
    /// The compiler said on standard error what is wrong.
    #[error("{doing} failed: `{}` ended with {status}", .compiler.to_string_lossy())]
    Failed {
        /// What was to be done.
        doing: &'static str,
        /// The compiler.
        compiler: OsString,
        /// How it ended.
        status: ExitStatus,
    },
    /// There is no place for what is made on the way.
    #[error("a temporary file could not be written: {0}")]
    Temporary(io::Error),
}

/// What will be missing from the traces of a program that was built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// An object, or an archive with one, that was compiled in another way.
    #[error(
        "{} was not compiled by record-build, or not all of it, so what its code reads and writes will not be in a trace; \
         compile it with `outlive-lab machine record-build` too",
        .0.display()
    )]
    Accesses(PathBuf),
    /// The threads of OpenMP meet within its own library.
    #[error(
        "the barriers and critical sections of OpenMP will not be in a trace, so its threads will not wait for one another in \
         a replay; programs with POSIX threads, or C's or C++'s, are recorded whole"
    )]
    OpenMp,
}

/// Does what the compiler's command says, so that the program can be recorded: compiles, links, or both. Nothing is
/// left behind but what the command would leave. What will be missing from its traces is returned.
///
/// # Errors
///
/// If the command cannot be done so, or fails.
pub fn build(command: &[OsString]) -> Result<Vec<Missing>, BuildError> {
    let (compiler, arguments) = command.split_first().ok_or(BuildError::Empty)?;
    if let Some(hint) = no_compiler(compiler) {
        return Err(BuildError::NoCompiler {
            command: compiler.clone(),
            hint,
        });
    }
    let arguments = Arguments::parse(arguments)?;
    let compiler = Compiler::new(compiler)?;
    if !arguments.has_inputs() {
        compiler.run("what was asked of the compiler", arguments.all())?;
        return Ok(Vec::new());
    }
    if arguments.compiles_only() {
        let all = arguments.all().chain(compiler.instrumented());
        compiler.run("the compilation", all)?;
        return Ok(Vec::new());
    }
    let room = tempfile::tempdir().map_err(BuildError::Temporary)?;
    let mut link = Vec::new();
    for (number, input) in arguments.inputs().enumerate() {
        match input {
            Input::Source(source) => {
                let object = room.path().join(format!("{number}.o"));
                let rest: [&OsStr; 4] = ["-c".as_ref(), source, "-o".as_ref(), object.as_ref()];
                let all = arguments
                    .options()
                    .chain(rest)
                    .chain(compiler.instrumented());
                compiler.run("the compilation", all)?;
                link.push(object.into_os_string());
            }
            Input::Other(other) => link.push(other.to_owned()),
        }
    }
    // A library's calls are answered by the program that uses it, those of copies among them.
    if !arguments.makes_object() {
        link.push(WRAPPED.into());
    }
    if !arguments.makes_object() && !arguments.makes_library() {
        link.push(compiler.runtime(room.path())?.into_os_string());
        link.extend(LIBRARIES.map(OsString::from));
    }
    compiler.run("the linking", link.iter().map(OsString::as_os_str))?;
    let files = arguments.files().map(PathBuf::from);
    let unseen = |file: &PathBuf| std::fs::read(file).is_ok_and(|bytes| unseen::is_unseen(&bytes));
    let missing = files.filter(unseen).map(Missing::Accesses);
    let open_mp = arguments.has_open_mp().then_some(Missing::OpenMp);
    Ok(missing.chain(open_mp).collect())
}

/// What to do instead, if a command is one of those that build programs in another way. Any other may be a compiler, by whatever name.
fn no_compiler(command: &OsStr) -> Option<&'static str> {
    let name = Path::new(command).file_name()?.to_str()?;
    Some(match name {
        "make" | "gmake" | "ninja" | "scons" | "bazel" | "meson" => {
            "have it call the compiler so, as in `make CC='outlive-lab machine record-build -- cc' CXX='outlive-lab machine record-build -- c++'`"
        }
        "cmake" | "configure" => {
            "give it a script as its compiler (CMAKE_C_COMPILER, CC) that calls `outlive-lab machine record-build -- cc \"$@\"`"
        }
        "rustc" | "cargo" | "go" | "javac" | "python" | "python3" | "ld" | "as" => {
            "only programs that gcc, clang or the like compile can be recorded"
        }
        "sh" | "bash" | "ls" | "echo" => {
            "write the compiler's command behind `--`, such as `cc -O3 program.c -o program -lpthread`"
        }
        _ => return None,
    })
}

struct Compiler {
    name: OsString,
    clang: bool,
}

impl Compiler {
    fn new(name: &OsStr) -> Result<Self, BuildError> {
        let said = Command::new(name)
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        let said = said.map_err(|source| BuildError::Start {
            compiler: name.to_owned(),
            source,
        })?;
        Ok(Self {
            name: name.to_owned(),
            clang: String::from_utf8_lossy(&said.stdout).contains("clang"),
        })
    }

    fn instrumented<'a>(&self) -> impl Iterator<Item = &'a OsStr> + use<'a> {
        let own: &[&str] = if self.clang { &CLANG } else { &GCC };
        INSTRUMENTED.iter().chain(own).map(OsStr::new)
    }

    fn run<'a>(
        &self,
        doing: &'static str,
        arguments: impl Iterator<Item = &'a OsStr>,
    ) -> Result<(), BuildError> {
        let status = Command::new(&self.name).args(arguments).status();
        let status = status.map_err(|source| BuildError::Start {
            compiler: self.name.clone(),
            source,
        })?;
        if status.success() {
            return Ok(());
        }
        Err(BuildError::Failed {
            doing,
            compiler: self.name.clone(),
            status,
        })
    }

    /// The object of the runtime, made in `room`.
    fn runtime(&self, room: &Path) -> Result<PathBuf, BuildError> {
        for (name, text) in RUNTIME {
            std::fs::write(room.join(name), text).map_err(BuildError::Temporary)?;
        }
        let (source, object) = (room.join("recorder.c"), room.join("recorder.o"));
        let files: [&OsStr; 3] = [source.as_ref(), "-o".as_ref(), object.as_ref()];
        let all = PLAIN.iter().map(OsStr::new).chain(files);
        self.run("the compilation of the recorder", all)?;
        Ok(object)
    }
}
