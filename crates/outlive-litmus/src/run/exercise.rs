//! The number of instances that have to be exercised before a test has a result.

/// One in this number of instances has to be exercised.
const ONE_IN: u64 = 100;
/// The number of exercised instances, however few instances there are.
const LEAST: u64 = 10;
/// In a short run one in this number of instances is sufficient, if these are less than [`LEAST`].
const ONE_IN_SHORT: u64 = 4;

/// Returns the number of exercised instances that a test with `instances` instances needs.
///
/// One overlap is too few: a store that executes transactions one after another, apart from rare
/// exceptions, would pass.
pub(super) fn required(instances: u64) -> u64 {
    let short = instances.div_ceil(ONE_IN_SHORT).max(1);
    (instances / ONE_IN).max(LEAST.min(short))
}

#[cfg(test)]
mod tests {
    use super::required;

    #[test]
    fn a_number_or_a_fraction_is_required() {
        let instances = [0, 1, 4, 5, 40, 250, 1000, 100_000];
        assert_eq!(instances.map(required), [1, 1, 1, 2, 10, 10, 10, 1000]);
    }
}
