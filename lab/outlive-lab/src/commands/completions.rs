//! `outlive-lab completions`: the completions of commands and options, for a shell.

use super::Lab;
use crate::failure::Failure;
use crate::output;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// The completions for a shell.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive-lab completions bash > ~/.local/share/bash-completion/completions/outlive-lab\n  \
    outlive-lab completions zsh > ~/.zfunc/_outlive-lab\n  \
    outlive-lab completions fish > ~/.config/fish/completions/outlive-lab.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Result<(), Failure> {
        let mut text = Vec::new();
        generate(self.shell, &mut Lab::command(), "outlive-lab", &mut text);
        output::print(String::from_utf8_lossy(&text))
    }
}
