//! The reasons why workers join and leave while an application runs: the two triggers of MODC
//! §3.1, and requests.

/// The reason why a worker on standby starts to work, or returns to standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// The pool has wanted this number of workers since it was made.
    Beginning,
    /// The number of ready tasks for each worker has left the [band](crate::Band), and the pool has
    /// resized itself.
    Tasks,
    /// More workers have died than may, or the new worker has the slot of a dead one.
    Failures,
    /// A caller has [requested](crate::WorkerPool::resize) the number of workers.
    Request,
}

impl Trigger {
    /// Returns the encoding beside the wanted number of workers. (Failures do not change that
    /// number.)
    pub(crate) fn to_bits(self) -> u32 {
        match self {
            Self::Beginning | Self::Failures => 0,
            Self::Tasks => 1,
            Self::Request => 2,
        }
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        match bits {
            1 => Self::Tasks,
            2 => Self::Request,
            _ => Self::Beginning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_said_a_number_is_told_apart() {
        for said in [Trigger::Beginning, Trigger::Tasks, Trigger::Request] {
            assert_eq!(Trigger::from_bits(said.to_bits()), said);
        }
    }
}
