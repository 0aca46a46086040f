//! Models, crash states and virtual time around the engine
