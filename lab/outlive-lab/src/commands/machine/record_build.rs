//! `outlive-lab machine record-build`: a program that writes a trace of itself.

use crate::failure::Failure;
use clap::Args;
use outlive_machine::recorder::{self, BuildError};
use std::ffi::OsString;
use std::io::{self, Write};

/// The command that builds a program which can be recorded.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive-lab machine record-build -- cc -O3 heat.c -o heat -lpthread\n  \
    OUTLIVE_TRACE=heat.trace ./heat          # runs and records it\n  \
    outlive-lab machine trace-info heat.trace\n  \
    make CC='outlive-lab machine record-build -- gcc'\n\n\
    The program is compiled with the instrumentation of -fsanitize=thread, and linked with \
    Outlive's runtime instead of the sanitizer's. It runs as usual unless OUTLIVE_TRACE names a \
    file for the trace. See docs/recording.md.")]
pub struct RecordBuild {
    /// The command of a compiler: gcc, clang or one with the same options
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

impl RecordBuild {
    pub fn run(self) -> Result<(), Failure> {
        let built = recorder::build(&self.command).map_err(|error| match error {
            BuildError::NoCompiler { .. } => Failure::Usage(error.to_string()),
            _ => Failure::new(error),
        });
        for missing in built? {
            // Standard error may be closed; the program is built nevertheless.
            let _ = writeln!(io::stderr(), "outlive: {missing}");
        }
        Ok(())
    }
}
