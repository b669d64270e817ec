//! The number of instances that have to be exercised before a test has a result.

/// One in this number of instances has to be exercised.
const ONE_IN: u64 = 100;
/// The number of exercised instances, however few instances there are.
const LEAST: u64 = 10;

/// Returns the number of exercised instances that a test with `instances` instances needs.
///
/// One overlap is too few: a store that executes transactions one after another, apart from rare
/// exceptions, would pass.
pub(super) fn required(instances: u64) -> u64 {
    (instances / ONE_IN).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::required;

    #[test]
    fn a_number_or_a_fraction_is_required() {
        let instances = [0, 1, 40, 1000, 2000, 100_000];
        assert_eq!(instances.map(required), [10, 10, 10, 10, 20, 1000]);
    }
}
