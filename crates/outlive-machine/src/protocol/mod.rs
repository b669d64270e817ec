//! What the controllers do: pure functions from a state and a message to a state and actions.
