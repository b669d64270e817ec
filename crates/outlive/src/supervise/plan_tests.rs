//! Tests a plan in a simulation: a table, a parent, a child that lives and dies at random,
//! supervisors that are killed, and other processes that start the child by hand.

use super::*;
use proptest::prelude::*;
use std::os::unix::process::ExitStatusExt;

const ID: InstanceId = 7;

fn ok() -> ExitStatus {
    ExitStatus::from_raw(0)
}

fn killed() -> ExitStatus {
    ExitStatus::from_raw(9)
}

fn absent(generation: u32, died: bool) -> InPod {
    InPod::Absent { generation, died }
}

fn lives(generation: u32) -> InPod {
    InPod::Lives {
        instance: Instance::new(ID, generation),
        host: 1,
    }
}

fn plan(most: u32) -> Plan {
    Plan::new(RestartPolicy {
        most,
        ..RestartPolicy::default()
    })
}

const NOW: Duration = Duration::from_secs(1);
const NOTHING: AsParent = AsParent::Ended(None);

/// A plan whose child was launched when its last generation was 3.
fn launched(most: u32) -> Plan {
    let mut plan = plan(most);
    assert_eq!(
        plan.look(NOW, absent(3, true), NOTHING, false),
        Some(Step::Start)
    );
    plan.started(absent(3, true));
    plan
}

fn failure(step: Option<Step>) -> Failure {
    match step {
        Some(Step::Tell(What::Failed { how, .. } | What::GaveUp { how, .. })) => how,
        other => panic!("{other:?} is not a failure"),
    }
}

#[test]
fn what_lives_is_adopted_and_not_started() {
    let mut plan = plan(5);
    let adopted = plan.look(NOW, lives(4), NOTHING, false);
    assert!(
        matches!(adopted, Some(Step::Tell(What::Adopted { instance, .. })) if instance.generation == 4)
    );
    assert_eq!(plan.look(NOW, lives(4), NOTHING, false), None);
    assert_eq!(
        failure(plan.look(NOW, InPod::Unrecovered { generation: 5 }, NOTHING, false)),
        Failure::Died { status: None }
    );
    // Not before it is recovered.
    assert_eq!(
        plan.look(NOW, InPod::Unrecovered { generation: 5 }, NOTHING, false),
        None
    );
    assert_eq!(
        plan.look(NOW, absent(5, true), NOTHING, false),
        Some(Step::Start)
    );
}

#[test]
fn the_death_of_the_last_incarnation_is_not_this_one_s() {
    let mut plan = launched(5);
    assert_eq!(plan.look(NOW, absent(3, true), AsParent::Runs, false), None);
    assert_eq!(plan.look(NOW, lives(4), AsParent::Runs, true), None);
    assert_eq!(
        failure(plan.look(NOW, absent(5, true), AsParent::Runs, false)),
        Failure::Died { status: None }
    );
}

#[test]
fn how_a_child_ended_is_told_by_both_witnesses() {
    let ended = |in_pod, status| launched(5).look(NOW, in_pod, AsParent::Ended(status), false);
    let finished = Some(Step::Tell(What::Finished));
    // It left and ended with success; or it had nothing to do in the pod.
    assert_eq!(ended(absent(4, false), Some(ok())), finished);
    assert_eq!(ended(absent(3, true), Some(ok())), finished);
    // It left, and its status is not known.
    assert_eq!(ended(absent(4, false), None), finished);
    let exited = Failure::Exited { status: killed() };
    assert_eq!(failure(ended(absent(4, false), Some(killed()))), exited);
    assert_eq!(failure(ended(absent(3, true), Some(killed()))), exited);
    // Success without having left.
    let died = |status| Failure::Died { status };
    assert_eq!(
        failure(ended(absent(5, true), Some(ok()))),
        died(Some(ok()))
    );
    let unrecovered = InPod::Unrecovered { generation: 5 };
    assert_eq!(
        failure(ended(unrecovered, Some(killed()))),
        died(Some(killed()))
    );
    assert!(matches!(
        failure(ended(absent(3, true), None)),
        Failure::NotStarted { .. }
    ));
}

#[test]
fn an_end_that_the_table_has_yet_to_show_counts_once() {
    let mut plan = launched(5);
    let ended = AsParent::Ended(Some(killed()));
    assert_eq!(plan.look(NOW, lives(4), ended, true), None);
    assert_eq!(plan.look(NOW, lives(4), ended, true), None);
    let how = failure(plan.look(NOW, absent(5, true), ended, false));
    assert_eq!(
        how,
        Failure::Died {
            status: Some(killed())
        }
    );
    assert_eq!(
        plan.look(NOW, absent(5, true), ended, false),
        Some(Step::Start)
    );
}

#[test]
fn a_child_that_was_refused_gives_way_to_who_has_the_id() {
    let mut plan = launched(5);
    let refused = AsParent::Ended(Some(ExitStatus::from_raw(1 << 8)));
    assert!(matches!(
        plan.look(NOW, lives(9), refused, false),
        Some(Step::Tell(What::Adopted { .. }))
    ));
    // The status of the refused one is not that of the other.
    assert_eq!(
        plan.look(NOW, absent(9, false), refused, false),
        Some(Step::Tell(What::Finished))
    );
}

#[test]
fn what_was_given_up_is_adopted_when_somebody_starts_it_and_counts_anew() {
    let mut plan = launched(0);
    let dead = |generation| (absent(generation, true), AsParent::Ended(Some(killed())));
    let (table, parent) = dead(5);
    assert!(matches!(
        plan.look(NOW, table, parent, false),
        Some(Step::Tell(What::GaveUp {
            why: GaveUp::Limit { restarts: 0 },
            ..
        }))
    ));
    assert_eq!(plan.outlook(), Outlook::GaveUp);
    assert_eq!(plan.look(NOW, table, parent, false), None);
    assert!(matches!(
        plan.look(NOW, lives(6), NOTHING, false),
        Some(Step::Tell(What::Adopted { .. }))
    ));
    assert_eq!(plan.outlook(), Outlook::Unsettled);
}

#[test]
fn an_id_that_no_process_can_have_is_given_up() {
    let of = |level, status| {
        InPod::of(
            ID,
            State {
                generation: 3,
                host: 0,
                level: Some(level),
                status,
            },
        )
    };
    for seen in [
        of(Level::Thread, Status::Live),
        of(Level::Host, Status::Fencing),
        of(Level::Process, Status::Retired),
    ] {
        assert!(matches!(
            plan(5).look(NOW, seen, NOTHING, false),
            Some(Step::Tell(What::GaveUp {
                why: GaveUp::Hopeless,
                ..
            }))
        ));
    }
}

/// An event of the simulation between two looks.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Joins,
    /// Is killed; the table shows it only later.
    Killed,
    /// The table shows a death.
    Raised,
    Recovered,
    LeavesAndExits(bool),
    Look,
    /// The supervisor is killed, and another takes over.
    Successor,
    ByHand,
    Later(u64),
}

/// The child's program in the simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    None,
    /// Running, not a member yet.
    OnItsWay,
    Member,
    /// Gone, and the table still shows it alive.
    GoneUnseen,
}

/// The simulation, with the true state.
struct World {
    table: InPod,
    program: Program,
    /// Whether the program was launched by the supervisor that acts now.
    ours: bool,
    status: ExitStatus,
    most: u32,
    plan: Plan,
    now: Duration,
    failures: usize,
    counted: usize,
}

impl World {
    fn generation(&self) -> u32 {
        match self.table {
            InPod::Absent { generation, .. } | InPod::Unrecovered { generation } => generation,
            InPod::Lives { instance, .. } => instance.generation,
            InPod::Unusable(_) => unreachable!(),
        }
    }

    fn happens(&mut self, what: Happens) {
        match (what, self.program) {
            (Happens::Joins, Program::OnItsWay) => {
                // A start is requested only while the id is unused, and this is the only program.
                assert!(matches!(self.table, InPod::Absent { .. }));
                self.table = lives(self.generation() + 1);
                self.program = Program::Member;
            }
            (Happens::Killed, Program::OnItsWay) => {
                self.program = Program::None;
                self.status = killed();
                // A successor that did not launch it does not see it.
                self.failures += usize::from(self.ours);
            }
            (Happens::Killed, Program::Member) => {
                self.program = Program::GoneUnseen;
                self.status = killed();
                self.failures += 1;
            }
            (Happens::Raised, Program::GoneUnseen) => {
                self.table = InPod::Unrecovered {
                    generation: self.generation() + 1,
                };
                self.program = Program::None;
            }
            (Happens::LeavesAndExits(well), Program::Member) => {
                self.table = absent(self.generation(), false);
                self.program = Program::None;
                self.status = if well { ok() } else { killed() };
                // An adopted one's status is not known.
                self.failures += usize::from(!well && self.ours);
            }
            (Happens::Recovered, _) => {
                if let InPod::Unrecovered { generation } = self.table {
                    self.table = absent(generation, true);
                }
            }
            // Only states that the supervisor has settled, so that its next action is clear.
            (Happens::ByHand, Program::None)
                if matches!(self.table, InPod::Absent { .. })
                    && self.plan.outlook() != Outlook::Unsettled =>
            {
                self.table = lives(self.generation() + 1);
                self.program = Program::Member;
                self.ours = false;
            }
            (Happens::Successor, _) => {
                // A failure that its predecessor had not judged is none for this one.
                self.plan = plan(self.most);
                self.ours = false;
                self.counted = self.failures;
                if self.program == Program::GoneUnseen {
                    // It will be adopted and then seen dead.
                    self.counted -= 1;
                }
            }
            (Happens::Later(millis), _) => self.now += Duration::from_millis(millis),
            (Happens::Look, _) => self.look(),
            _ => {}
        }
    }

    fn look(&mut self) {
        loop {
            let parent = match self.program {
                _ if !self.ours => NOTHING,
                Program::OnItsWay | Program::Member => AsParent::Runs,
                Program::None | Program::GoneUnseen => AsParent::Ended(Some(self.status)),
            };
            match self.plan.look(self.now, self.table, parent, self.ours) {
                None => return,
                Some(Step::Start) => {
                    assert!(
                        matches!(self.program, Program::None) || !self.ours,
                        "a second one was started while {:?}",
                        self.program
                    );
                    assert!(matches!(self.table, InPod::Absent { .. }));
                    if self.program == Program::OnItsWay {
                        // A successor cannot know of it. One of the two will be refused: let it be
                        // the first.
                        self.program = Program::None;
                    }
                    self.plan.started(self.table);
                    self.program = Program::OnItsWay;
                    self.ours = true;
                }
                Some(Step::Tell(What::Failed { .. } | What::GaveUp { .. })) => self.counted += 1,
                Some(Step::Tell(What::Adopted { instance, .. })) => {
                    assert_eq!(self.generation(), instance.generation);
                    self.ours = false;
                }
                Some(Step::Tell(_)) => {}
            }
        }
    }
}

fn happenings() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Joins),
        2 => Just(Happens::Killed),
        3 => Just(Happens::Raised),
        3 => Just(Happens::Recovered),
        1 => any::<bool>().prop_map(Happens::LeavesAndExits),
        4 => Just(Happens::Look),
        1 => Just(Happens::Successor),
        1 => Just(Happens::ByHand),
        2 => (0u64..2_000).prop_map(Happens::Later),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn nothing_is_started_twice_and_every_failure_is_counted_once(
        most in 0u32..5,
        what in prop::collection::vec(happenings(), 0..80),
        looks_often: bool,
    ) {
        let mut world = World {
            table: absent(0, false),
            program: Program::None,
            ours: false,
            status: ok(),
            most,
            plan: plan(most),
            now: Duration::ZERO,
            failures: 0,
            counted: 0,
        };
        for what in what {
            world.happens(what);
            if looks_often {
                world.look();
            }
            prop_assert!(world.counted <= world.failures, "{} of {}", world.counted, world.failures);
        }
        world.look();
        // In the end all visible changes are seen.
        for _ in 0..3 {
            world.happens(Happens::Raised);
            world.happens(Happens::Recovered);
            world.now += Duration::from_secs(100);
            world.look();
        }
        // A child that was started by hand can come and go unseen.
        prop_assert!(world.counted == world.failures || !looks_often);
        if world.plan.outlook() == Outlook::Unsettled {
            prop_assert!(world.program != Program::None, "nothing runs, and nothing is to be started");
        }
    }
}
