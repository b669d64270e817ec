//! `outlive completions`: what a shell needs to complete the rest.

use super::Outlive;
use crate::failure::Failure;
use crate::output;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// The completions for a shell.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive completions bash > ~/.local/share/bash-completion/completions/outlive\n  \
    outlive completions zsh > ~/.zfunc/_outlive\n  \
    outlive completions fish > ~/.config/fish/completions/outlive.fish")]
pub struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Result<(), Failure> {
        let mut text = Vec::new();
        generate(self.shell, &mut Outlive::command(), "outlive", &mut text);
        output::print(String::from_utf8_lossy(&text))
    }
}
