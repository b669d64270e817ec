//! The simulator: its descriptions, engine, programs and traces, its parts, and whole clusters.

mod support;
mod traces;

mod cluster_crash;
mod cluster_latency;
mod cluster_litmus;
mod cluster_owned;
mod cluster_pins;
mod cluster_random;
mod cluster_replication;
mod cluster_synchronisation;
mod cluster_truncation;
mod coherence;
mod description_errors;
mod description_text;
mod engine_order;
mod logging_crash;
mod logging_dump;
mod logging_rounds;
mod logging_unit;
mod parts_cache;
mod parts_closed_form;
mod program_coroutine;
mod program_event_counts;
mod program_reference;
mod replication_deaths;
mod replication_faults;
mod replication_search;
mod run;
mod trace_any;
mod trace_format;
mod trace_recorded;
