//! The configurations of the machine on the command line, with the names that they have in a file.

use clap::ValueEnum;
use outlive_machine::description::Protocol;

/// The way in which the machine makes stores survive the death of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Configuration {
    /// Write-back: stores are not protected (also named write-back)
    #[value(alias = "write-back")]
    Wb,
    /// Write-through: a store completes when persistent memory has it (also named write-through)
    #[value(alias = "write-through")]
    Wt,
    /// ReCXL: a store is replicated when its line has arrived
    #[value(name = "recxl-baseline", alias = "baseline")]
    Baseline,
    /// ReCXL: a store is replicated while its line is being fetched
    #[value(name = "recxl-parallel", alias = "parallel")]
    Parallel,
    /// ReCXL: a store is replicated when the next one cannot be coalesced with it
    #[value(name = "recxl-proactive", alias = "proactive")]
    Proactive,
    /// ReCXL: a store is replicated as soon as it has retired, and none are coalesced (also named
    /// uncoalesced)
    #[value(
        name = "recxl-proactive-uncoalesced",
        aliases = ["proactive-uncoalesced", "recxl-uncoalesced", "uncoalesced"]
    )]
    Uncoalesced,
    /// Ours: proactive; while few stores wait, each is replicated as soon as it has retired; locks
    /// are taken by stores
    #[value(name = "recxl-adaptive", alias = "adaptive")]
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
    fn names_are_those_of_a_file() {
        let of = |one: &Configuration| one.to_possible_value().unwrap();
        for one in Configuration::value_variants() {
            let protocol = Protocol::from(*one);
            assert_eq!(of(one).get_name(), protocol.name());
            for name in of(one).get_name_and_aliases() {
                assert_eq!(Protocol::named(name), Some(protocol), "{name}");
            }
        }
        let known = |name: &str| Configuration::from_str(name, false).is_ok();
        for protocol in Protocol::ALL {
            assert!(known(protocol.name()) && known(protocol.name().trim_start_matches("recxl-")));
        }
        assert_eq!(Configuration::value_variants().len(), Protocol::ALL.len());
    }
}
