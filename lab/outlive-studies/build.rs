//! Builds the C++ and C peers of the studies for the features `peers`, `mpi` and `lupin`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "peers")]
    peers();
    #[cfg(feature = "mpi")]
    mpi();
    #[cfg(feature = "lupin")]
    lupin();
}

/// Builds the MPI program, which is embedded in the study's binary.
#[cfg(feature = "mpi")]
fn mpi() {
    println!("cargo::rerun-if-changed=peers/pagerank_mpi.c");
    let packages = "the feature `mpi` needs OpenMPI (on Debian: libopenmpi-dev openmpi-bin)";
    let mpicc = std::process::Command::new("mpicc");
    let files = ["peers/pagerank_mpi.c", "pagerank_mpi"];
    build(mpicc, &["-O3"], files, &["-lm"], packages);
}

/// Builds the six C programs of the LUPIN tables.
#[cfg(feature = "lupin")]
fn lupin() {
    println!("cargo::rerun-if-changed=peers/lupin");
    let packages = "the feature `lupin` needs a C compiler, zlib and OpenSSL's libcrypto \
                    (on Debian: gcc zlib1g-dev libssl-dev)";
    let programs: [(&str, &[&str]); 6] = [
        ("wordcount", &[]),
        ("kmeans", &["-lm"]),
        ("matmul", &[]),
        ("histogram", &[]),
        ("blackscholes", &["-lm"]),
        ("dedup", &["-lz", "-lcrypto"]),
    ];
    for (name, libraries) in programs {
        // Optimised, whatever profile the study itself is built with.
        let cc = cc::Build::new()
            .opt_level(3)
            .debug(false)
            .force_frame_pointer(false)
            .pic(false)
            .try_get_compiler();
        let cc = cc.unwrap_or_else(|error| panic!("{packages}: {error}"));
        // No fused multiply-add: every product and every sum is rounded once.
        let flags = ["-ffp-contract=off", "-pthread"];
        let files = [&*format!("peers/lupin/{name}.c"), &*format!("lupin-{name}")];
        build(cc.to_command(), &flags, files, libraries, packages);
    }
}

/// Builds `program` from `source` with `compiler`; `packages` names the Debian packages needed.
#[cfg(any(feature = "mpi", feature = "lupin"))]
fn build(
    mut compiler: std::process::Command,
    flags: &[&str],
    [source, program]: [&str; 2],
    libraries: &[&str],
    packages: &str,
) {
    println!("cargo::rerun-if-env-changed=PATH");
    let out = std::env::var_os("OUT_DIR").expect("cargo says where");
    let built = compiler
        .args(["-std=c11", "-Wall", "-Wextra"])
        .args(flags)
        .arg(source)
        .arg("-o")
        .arg(std::path::Path::new(&out).join(program))
        .args(libraries)
        .status();
    let compiler = compiler.get_program().display();
    match built {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{packages}: {compiler} ended with {status}"),
        Err(error) => panic!("{packages}: {compiler} cannot be started: {error}"),
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
