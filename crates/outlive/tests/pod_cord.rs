//! The cords of a pod's hosts lie beside the pod's file, also those of the process that created it.

use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodOptions};

#[test]
fn a_creator_that_joins_has_its_cord_beside_the_pod() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pod");
    let pod = Pod::create(&path, PodOptions::new().size(4 << 20))?;
    let process = pod.join(ProcessOptions::on_host(0))?;
    let entries = std::fs::read_dir(directory.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let names: Vec<_> = names.collect();
    let has_cord = names.iter().any(|name| name.contains(".cord."));
    assert!(has_cord, "{names:?}");
    drop(process);
    drop(pod);
    Pod::destroy(&path)?;
    Ok(())
}
