//! Integers that hold a value and the number of the write that stored it.
//!
//! The last eight decimal digits of a positive integer are the value, as long as it is positive:
//! 1700000003 is the value 3 of the write 17. The number 0 is that of initial values.

/// The distance between the integers of two writes of one value.
const STEP: i64 = 100_000_000;

/// The largest value; the smallest one is its negative.
pub const MAX: i64 = STEP / 2 - 1;

/// Returns the integer of a value and the number of its write, `None` if it is too large.
pub fn numbered(value: i64, number: u64) -> Option<i64> {
    if value.unsigned_abs() > MAX.unsigned_abs() {
        return None;
    }
    let base = i64::try_from(number).ok()?.checked_mul(STEP)?;
    base.checked_add(value)
}

/// Returns the value that a numbered integer contains.
pub fn value(numbered: i64) -> i64 {
    let digits = numbered.rem_euclid(STEP);
    match digits > MAX {
        true => digits - STEP,
        false => digits,
    }
}

/// Returns whether an integer is an initial value.
pub fn is_initial(numbered: i64) -> bool {
    numbered.unsigned_abs() <= MAX.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_has_the_value_of_its_write() {
        for of in [0, 1, -1, 17, MAX, -MAX] {
            for number in [0, 1, 2, 90_000_000_000] {
                let it = numbered(of, number).unwrap();
                assert_eq!(
                    (value(it), is_initial(it)),
                    (of, number == 0),
                    "{of} {number}"
                );
            }
        }
        assert_eq!(numbered(3, 17), Some(1_700_000_003));
        assert_eq!(numbered(MAX + 1, 0), None);
        assert_eq!(numbered(i64::MIN, 0), None);
        assert_eq!(numbered(1, u64::MAX), None);
    }
}
