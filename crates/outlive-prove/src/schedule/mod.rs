//! Every interleaving at small sizes, with deaths.
