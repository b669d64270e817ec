//! `outlive completions`: completion scripts for shells.

use super::Outlive;
use crate::failure::Failure;
use crate::output;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Arguments of `outlive completions`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive completions bash > ~/.local/share/bash-completion/completions/outlive\n  \
    outlive completions zsh > ~/.zfunc/_outlive\n  \
    outlive completions fish > ~/.config/fish/completions/outlive.fish")]
pub struct Completions {
    /// The shell to complete for
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Result<(), Failure> {
        let mut text = Vec::new();
        generate(self.shell, &mut Outlive::command(), "outlive", &mut text);
        output::print(String::from_utf8_lossy(&text))
    }
}
