//! Tests of tasks by number and name, of arguments, and of the names that a program may use.

use super::*;

task! {
    fn nothing(_context) {
        Ok(())
    }

    fn fails(_context, why: u8, code: [u64; 2]) {
        Err(TaskError::new(format_args!("{why} {code:?}")))
    }
}

#[test]
fn tasks_are_collected_and_numbered_by_name() {
    let all = Registry::collected();
    let (one, two) = (nothing().definition(), fails(1, [2, 3]).definition());
    let (first, second) = (all.number(two).unwrap(), all.number(one).unwrap());
    assert!(first < second, "`fails` comes before `nothing`");
    assert!(core::ptr::eq(all.get(first).unwrap(), two));
    // The number is guessed, and the guess may be that of another registry.
    let alone = Registry::of([one]).unwrap();
    assert_eq!(alone.number(one), Some(0));
    assert_eq!(alone.number(two), None);
    assert_eq!(all.number(one), Some(second));
}

#[test]
fn arguments_survive_packing() {
    let call = fails(7, [u64::MAX, 1]);
    assert_eq!(call.arguments().len(), 17);
    assert!(format!("{call:?}").ends_with("fails(why: 7, code: [18446744073709551615, 1])"));
    let mut packed = Packed::new();
    for n in 0..40u64 {
        packed.push(&n);
    }
    let mut bytes = packed.bytes();
    for n in 0..40u64 {
        assert_eq!(unpack::<u64>(&mut bytes).unwrap(), n);
    }
    assert!(unpack::<u64>(&mut bytes).is_err());
}

#[test]
fn a_differing_set_is_named() {
    let one = Registry::of([nothing().definition()]).unwrap();
    let other = Registry::of([fails(0, [0; 2]).definition()]).unwrap();
    assert_ne!(one.fingerprint(), other.fingerprint());
    let said = one.difference(other.text());
    assert!(
        said.contains("lacks `") && said.contains("fails(why: u8"),
        "{said}"
    );
    assert!(said.contains("nothing()`, which the pool lacks"), "{said}");
    let twice = Registry::of([nothing().definition(), nothing().definition()]);
    assert!(twice.unwrap_err().to_string().contains("nothing"));
}

/// The macro must not shadow these items in a task's body.
fn run(number: u64) -> u64 {
    number + 1
}

const DEFINITION: u64 = 7;

task! {
    #[allow(clippy::too_many_arguments)]
    fn named_as_it_likes(
        cx,
        run: u64,
        show: u64,
        worker: u32,
        pool: u64,
        job: [u8; 2],
        args: u64,
        arguments: u64,
        name: u64,
        context: u64,
        packed: u64,
        shown: u64,
        value: u64,
        definition: u64,
        self_: u64,
        this: u64,
        r#type: u64,
        call: u64,
    ) {
        let sum = run + show + u64::from(worker) + pool + args + arguments + name + context;
        let sum = sum + packed + shown + value + definition + self_ + this + r#type + call;
        Err(TaskError::new(format_args!("{} in {job:?}, {}", sum, cx.name().len())))
    }

    fn means_its_own(_context, number: u64) {
        Err(TaskError::new(format_args!("{} {DEFINITION}", run(number))))
    }

    /// An argument may have the name of its task.
    fn echo(_context, echo: u64) {
        Err(TaskError::new(echo))
    }
}

#[test]
fn arguments_are_called_as_one_likes() {
    let call = named_as_it_likes(
        1,
        2,
        3,
        4,
        [5, 6],
        7,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        17,
        18,
    );
    let shown = format!("{call:?}");
    assert!(
        shown.contains("named_as_it_likes(run: 1, show: 2, worker: 3, pool: 4, job: [5, 6], args: 7, arguments: 8"),
        "{shown}"
    );
    assert!(shown.ends_with("call: 18)"), "{shown}");
    assert!(format!("{:?}", echo(3)).ends_with("echo(echo: 3)"));
    let all = Registry::collected();
    assert!(all.number(call.definition()).is_some());
    assert!(format!("{:?}", means_its_own(1)).ends_with("means_its_own(number: 1)"));
}
