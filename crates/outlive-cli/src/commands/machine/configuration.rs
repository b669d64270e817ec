//! The configurations of the machine, as they are named on the command line.

use clap::ValueEnum;
use outlive_machine::description::Protocol;

/// What the machine does so that stores outlive a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Configuration {
    /// Write-back: nothing is done for that
    #[value(alias = "write-back")]
    Wb,
    /// Write-through: a store is done when persistent memory has it
    #[value(alias = "write-through")]
    Wt,
    /// ReCXL: a store is replicated when its line has come
    #[value(alias = "recxl-baseline")]
    Baseline,
    /// ReCXL: a store is replicated while its line is on the way
    #[value(alias = "recxl-parallel")]
    Parallel,
    /// ReCXL: a store is replicated when the next one cannot join it
    #[value(alias = "recxl-proactive")]
    Proactive,
    /// ReCXL: a store is replicated as soon as it has retired, and none joins another
    #[value(aliases = ["proactive-uncoalesced", "recxl-proactive-uncoalesced"])]
    Uncoalesced,
    /// Ours: proactive; while few stores wait, each is replicated as soon as it has retired; locks are taken by stores
    #[value(alias = "recxl-adaptive")]
    Adaptive,
}

impl From<Configuration> for Protocol {
    fn from(configuration: Configuration) -> Self {
        match configuration {
            Configuration::Wb => Self::WriteBack,
            Configuration::Wt => Self::WriteThrough,
            Configuration::Baseline => Self::Baseline,
            Configuration::Parallel => Self::Parallel,
            Configuration::Proactive => Self::Proactive,
            Configuration::Uncoalesced => Self::Uncoalesced,
            Configuration::Adaptive => Self::Adaptive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_of_the_machine_has_a_name_and_its_own_is_known_too() {
        for protocol in Protocol::ALL {
            let named = Configuration::from_str(protocol.name(), false).map(Protocol::from);
            assert_eq!(named, Ok(*protocol));
        }
        assert_eq!(Configuration::value_variants().len(), Protocol::ALL.len());
    }
}
