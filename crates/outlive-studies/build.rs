//! Builds the rivals in C++ and C, if the feature `peers` asks for them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "peers")]
    peers();
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
