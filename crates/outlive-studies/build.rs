//! Builds the rivals in C++ and C, if the features `peers` and `mpi` ask for them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "peers")]
    peers();
    #[cfg(feature = "mpi")]
    mpi();
}

/// A program of its own, which the study carries with it.
#[cfg(feature = "mpi")]
fn mpi() {
    use std::path::Path;
    use std::process::Command;
    println!("cargo::rerun-if-changed=peers/pagerank_mpi.c");
    println!("cargo::rerun-if-env-changed=PATH");
    let out = std::env::var_os("OUT_DIR").expect("cargo says where");
    let built = Command::new("mpicc")
        .args(["-std=c11", "-O3", "-Wall", "-Wextra"])
        .arg("peers/pagerank_mpi.c")
        .arg("-o")
        .arg(Path::new(&out).join("pagerank_mpi"))
        .arg("-lm")
        .status();
    let packages = "the feature `mpi` needs OpenMPI (on Debian: libopenmpi-dev openmpi-bin)";
    match built {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{packages}: mpicc ended with {status}"),
        Err(error) => panic!("{packages}: mpicc cannot be started: {error}"),
    }
}

#[cfg(feature = "peers")]
fn peers() {
    println!("cargo::rerun-if-changed=peers");
    let packages = "the feature `peers` needs a C++ compiler, Boost.Interprocess and PMDK's headers \
                    (on Debian: g++ libboost-dev libpmemobj-dev)";
    let boost = cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file("peers/boost.cpp")
        .try_compile("outlive_study_boost");
    if let Err(error) = boost {
        panic!("{packages}: {error}");
    }
    let pmemobj = cc::Build::new()
        .file("peers/pmemobj.c")
        .try_compile("outlive_study_pmemobj");
    if let Err(error) = pmemobj {
        panic!("{packages}: {error}");
    }
}
