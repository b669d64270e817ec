//! The plain programs, one thread each, timed, for comparison with their task versions. Each checks
//! its result, unless `OUTLIVE_UNCHECKED` is set. Without the check, the process does exactly the
//! work of a run: it reads its input and finds the result. So the processor times of the two, from
//! start to end, can be compared.
//!
//! `plain kmeans [FILE]`, `plain matmul [A B]`, `plain histogram [FILE]`, `plain blackscholes
//! [FILE]`, `plain dedup [PATH]…`; without a file, on generated input (dedup: on the shipped text).

use outlive_programs::blackscholes::{self, Normal, Portfolio};
use outlive_programs::dedup::{self, archive::Archive, tree::Tree};
use outlive_programs::histogram::{self, Bins, Format, Layout};
use outlive_programs::kmeans::{self, Options, Points};
use outlive_programs::matmul::{self, Matrix};
use outlive_programs::wordcount::shipped_text;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Returns the processor time of this thread, the only one, in seconds; 0 if the kernel does not
/// report it.
fn processor_time() -> f64 {
    let said = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = said.split_ascii_whitespace().next();
    nanos.and_then(|nanos| nanos.parse().ok()).unwrap_or(0.0) / 1e9
}

/// Returns whether results are checked.
fn is_checked() -> bool {
    env::var_os("OUTLIVE_UNCHECKED").is_none()
}

/// Checks a result, unless checks are off.
fn checked<E: Into<Box<dyn Error>>>(
    check: impl FnOnce() -> Result<(), E>,
) -> Result<(), Box<dyn Error>> {
    match is_checked() {
        true => timed("verify", check).map_err(Into::into),
        false => Ok(()),
    }
}

fn timed<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let (began, before) = (Instant::now(), processor_time());
    let result = work();
    println!(
        "{what}: {:.3} s, {:.3} s of processor time",
        began.elapsed().as_secs_f64(),
        processor_time() - before
    );
    result
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let program = arguments.next().unwrap_or_default();
    let paths: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let first = paths.first().map(PathBuf::as_path);
    match program.as_str() {
        "kmeans" => kmeans(first),
        "matmul" => matmul(&paths),
        "histogram" => histogram(first),
        "blackscholes" => blackscholes(first),
        "dedup" => dedup(paths),
        _ => Err("name kmeans, matmul, histogram, blackscholes or dedup".into()),
    }
}

fn kmeans(file: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let points = match file {
        Some(file) => timed("read", || Points::read(file))?,
        None => Points::generate(500_000, 3, 100, 1),
    };
    let options = Options {
        clusters: points.len().min(100),
        iterations: 10,
        ..Options::default()
    };
    let found = timed("kmeans", || kmeans::cluster(&points, &options))?;
    println!(
        "{} points of {} coordinates, {} iterations, the centres last moved {}",
        points.len(),
        points.dimensions(),
        found.iterations,
        found.moved
    );
    checked(|| kmeans::verify::verify(&points, &found))
}

fn matmul(files: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let (a, b) = match files {
        [a, b, ..] => (Matrix::read(a)?, Matrix::read(b)?),
        _ => (
            Matrix::generate(1000, 1000, 1),
            Matrix::generate(1000, 1000, 2),
        ),
    };
    let began = Instant::now();
    let product = timed("matmul", || matmul::multiply(&a, &b))?;
    let operations = 2.0 * (a.rows() * a.columns() * b.columns()) as f64;
    println!(
        "{:.2} thousand million operations a second",
        operations / began.elapsed().as_secs_f64() / 1e9
    );
    checked(|| matmul::verify::verify(&a, &b, &product, 20, 1))
}

fn histogram(file: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let (layout, bins) = match file {
        Some(path) => timed("read and count", || count_file(path))?,
        None => {
            let file = histogram::generate::bmp(8001, 4000, 1);
            let layout = Layout::find(&file, Format::Any)?;
            let bins = timed("histogram", || histogram::count(&file, &layout));
            checked(|| histogram::verify::verify(&file, &layout, &bins))?;
            (layout, bins)
        }
    };
    println!("{} values of {:?}", bins.total(), layout.channels());
    match file {
        Some(path) if is_checked() => {
            let file = fs::read(path)?;
            checked(|| histogram::verify::verify(&file, &layout, &bins))
        }
        _ => Ok(()),
    }
}

/// Piece by piece; each stays in the processor's cache until it is counted.
fn count_file(path: &Path) -> Result<(Layout, Bins), Box<dyn Error>> {
    let mut file = fs::File::open(path)?;
    let len = file.metadata()?.len() as usize;
    let mut piece = Vec::new();
    (&mut file)
        .take(Layout::HEAD as u64)
        .read_to_end(&mut piece)?;
    let layout = Layout::find_by(&piece, len, Format::Any)?;
    let (data, mut bins) = (layout.data(), Bins::default());
    file.seek(SeekFrom::Start(data.start as u64))?;
    let mut at = 0;
    while at < data.len() {
        piece.resize((data.len() - at).min(256 << 10), 0);
        file.read_exact(&mut piece)?;
        histogram::kernel::count(&piece, at, &layout, &mut bins);
        at += piece.len();
    }
    Ok((layout, bins))
}

fn blackscholes(file: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let portfolio = match file {
        Some(file) => timed("read", || Portfolio::read(file))?,
        None => Portfolio::generate(2_000_000, 1),
    };
    for normal in [Normal::Polynomial, Normal::Accurate] {
        let prices = timed(&format!("{normal:?}"), || {
            blackscholes::price(&portfolio, normal)
        });
        if !is_checked() {
            // A run computes with one of the two.
            break;
        }
        checked(|| blackscholes::verify::verify(&portfolio, &prices, normal, 10_000))?;
    }
    println!("{} options", portfolio.options().len());
    Ok(())
}

fn dedup(mut paths: Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    if paths.is_empty() {
        paths.push(place.path().join("king-james-bible.txt"));
        fs::write(&paths[0], shipped_text())?;
    }
    let tree = Tree::find(&paths)?;
    let mut file = Vec::new();
    let summary = timed("dedup", || dedup::pack_alone(&tree, 6, &mut file))?;
    println!("{summary:?}");
    if !is_checked() {
        return Ok(());
    }
    let archive = Archive::open(file.as_slice())?;
    let unpacked = timed("unpack", || {
        dedup::unpack::unpack(&archive, &place.path().join("unpacked"))
    })?;
    println!("{unpacked:?}");
    checked(|| dedup::verify::verify(&archive, &tree))
}
