//! The small scenarios are proved, and each flaw is found. `outlive-lab prove model --all --full`
//! proves the large ones as well, which takes minutes.

use outlive_model::check::{find, find_in, prove};
use outlive_model::flaws::Flaw;
use outlive_model::{properties, scenarios};

#[test]
fn small_scenarios_hold() {
    let mut wrong = Vec::new();
    for scenario in scenarios::ALL.into_iter().filter(|it| it.is_small) {
        let report = prove(scenario, 1, None);
        println!(
            "{}: {} states, depth {}, {:?}",
            scenario.name, report.states, report.depth, report.time
        );
        if !report.holds() {
            wrong.push(format!("{}: {report:#?}", scenario.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_flaw_is_found() {
    let mut missed = Vec::new();
    for flaw in Flaw::ALL {
        let report = find(flaw);
        let (scenario, property) = flaw.finder();
        let Some(steps) = report.steps_to(property) else {
            missed.push(format!("{} in {scenario}: {property}", flaw.name()));
            continue;
        };
        println!(
            "{}, in {scenario}, {} states, {:?}: {property}\n  {}\n",
            flaw.name(),
            report.states,
            report.time,
            steps.join("\n  ")
        );
    }
    assert!(missed.is_empty(), "not found:\n{}", missed.join("\n"));
}

/// Cor1 and Cor4 are conditions. Without them, others do not hold.
#[test]
fn violations_of_conditions_have_consequences() {
    let scenario = scenarios::named("contention").expect("a scenario with writers of one object");
    for flaw in [Flaw::RecoversBeforeRevoking, Flaw::NotifiesFirst] {
        let report = find_in(flaw, scenario, properties::COR3);
        let steps = report.steps_to(properties::COR3).map(<[String]>::len);
        println!("{}: in {steps:?} steps", flaw.name());
        assert!(steps.is_some(), "{flaw:?}: {report:#?}");
    }
}
