//! WordCount's baseline: one thread, a standard hash map. `count_alone FILE [words|whitespace]`
use outlive_programs::{tokens::Tokens, wordcount::count_alone};
use std::{env, path::Path, time::Instant};

fn main() -> std::io::Result<()> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().unwrap_or_default();
    let tokens = match arguments.next().as_deref() {
        Some("whitespace") => Tokens::Whitespace,
        _ => Tokens::Words,
    };
    let began = Instant::now();
    let counts = count_alone(Path::new(&path), tokens)?;
    let seconds = began.elapsed().as_secs_f64();
    let words: u64 = counts.values().sum();
    println!("{words} words, {} distinct, {seconds:.3} s", counts.len());
    Ok(())
}
