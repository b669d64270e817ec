//! Builds real programs so that they can be recorded as [traces](crate::trace).
//!
//! C and C++ are compiled with the instrumentation of `-fsanitize=thread`, and linked with our
//! runtime instead of the sanitizer's; its source is compiled in the same build. The program
//! behaves as usual; with `OUTLIVE_TRACE=FILE` in its environment, it writes a trace.
//! `docs/recording.md` has the usage and the limits.

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

/// Options for recorded code. Writes that the instrumentation would miss are left to calls, which
/// it sees.
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
/// Volatile accesses are distinguished, because programs wait for one another by them. Under its
/// inner names, as in headers of C++ and of checked functions, a copy is done in place, without an
/// announcement, if all sizes are known. So the size of the destination is one that the compiler
/// does not know, and which always suffices; as an expression, not a function, it may stand
/// wherever the copy may.
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
/// Options for the runtime itself, which must not call the functions that it replaces.
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

/// The reasons why a program was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No compiler was named.
    #[error(
        "no compiler was named; give a whole command, such as `cc -O3 program.c -o program \
         -lpthread`"
    )]
    Empty,
    /// A command that is known not to be a compiler of C or C++.
    #[error("`{}` is not a compiler of C or C++; {hint}", .command.to_string_lossy())]
    NoCompiler {
        /// The command.
        command: OsString,
        /// The remedy.
        hint: &'static str,
    },
    /// An argument that is incompatible with recording.
    #[error("a program cannot be recorded with `{}`; {hint}", .argument.to_string_lossy())]
    Argument {
        /// The argument.
        argument: OsString,
        /// The remedy.
        hint: &'static str,
    },
    /// The compiler did not start.
    #[error("the compiler `{}` did not start: {source}", .compiler.to_string_lossy())]
    Start {
        /// The compiler.
        compiler: OsString,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The compiler failed, with its reason on standard error.
    #[error("{doing} failed: `{}` ended with {status}", .compiler.to_string_lossy())]
    Failed {
        /// The failed step.
        doing: &'static str,
        /// The compiler.
        compiler: OsString,
        /// The exit status of the compiler.
        status: ExitStatus,
    },
    /// A temporary file could not be written.
    #[error("a temporary file could not be written: {0}")]
    Temporary(io::Error),
}

/// Accesses or events that will be missing from the traces of a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// An object, or an archive with one, that was compiled without the instrumentation.
    #[error(
        "{} was not compiled by record-build, or not all of it, so the accesses of its code will \
         not be in a trace; compile it with `outlive-lab machine record-build` too",
        .0.display()
    )]
    Accesses(PathBuf),
    /// The threads of OpenMP synchronise within its own library.
    #[error(
        "the barriers and critical sections of OpenMP will not be in a trace, so its threads will \
         not wait for one another in a replay; programs with the threads of POSIX, C or C++ are \
         recorded completely"
    )]
    OpenMp,
}

/// Executes the compiler's command so that the program can be recorded: compiles, links, or both.
/// It leaves only the files that the command would leave. Returns the parts that will be missing
/// from the program's traces.
///
/// # Errors
///
/// If the command cannot be executed in this way, or fails.
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
        compiler.run("the command", arguments.all())?;
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
    // The program that uses a library answers its calls, including those of copies.
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

/// Returns the alternative, if a command is known to build programs in another way. Any other
/// command may be a compiler.
fn no_compiler(command: &OsStr) -> Option<&'static str> {
    let name = Path::new(command).file_name()?.to_str()?;
    Some(match name {
        "make" | "gmake" | "ninja" | "scons" | "bazel" | "meson" => {
            "let it call the compiler through `record-build`, as in `make CC='outlive-lab machine \
             record-build -- cc' CXX='outlive-lab machine record-build -- c++'`"
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

    /// Compiles the runtime to an object in the directory `room`.
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
