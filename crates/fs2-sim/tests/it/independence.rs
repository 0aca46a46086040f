//! The client, the device and the oracles share no code with what they judge.

const JUDGES: [(&str, &str); 12] = [
    ("kernel", include_str!("../../src/model/kernel.rs")),
    ("ask", include_str!("../../src/model/ask.rs")),
    ("device", include_str!("../../src/model/device.rs")),
    ("content", include_str!("../../src/model/content.rs")),
    ("image", include_str!("../../src/model/image.rs")),
    ("mark", include_str!("../../src/model/mark.rs")),
    ("world/oracle", include_str!("../../src/model/world/oracle.rs")),
    ("world/events", include_str!("../../src/model/world/events.rs")),
    ("worlds' client", include_str!("../../src/world/client.rs")),
    ("worlds' disk", include_str!("../../src/world/disk.rs")),
    ("worlds' history", include_str!("../../src/world/history.rs")),
    ("worlds' image", include_str!("../../src/world/image.rs")),
];

const OTHERS: [(&str, &str); 18] = [
    ("world", include_str!("../../src/model/world/mod.rs")),
    ("world/act", include_str!("../../src/model/world/act.rs")),
    ("world/action", include_str!("../../src/model/world/action.rs")),
    ("world/device_queue", include_str!("../../src/model/world/device_queue.rs")),
    ("world/enabled", include_str!("../../src/model/world/enabled.rs")),
    ("world/sockets", include_str!("../../src/model/world/sockets.rs")),
    ("world/tools", include_str!("../../src/model/world/tools.rs")),
    ("world/tally", include_str!("../../src/model/world/tally.rs")),
    ("world/words", include_str!("../../src/model/world/words.rs")),
    ("explore", include_str!("../../src/model/explore.rs")),
    ("scenarios", include_str!("../../src/model/scenarios/mod.rs")),
    ("swarm", include_str!("../../src/model/swarm.rs")),
    ("worlds", include_str!("../../src/world/mod.rs")),
    ("worlds' driver", include_str!("../../src/world/driver.rs")),
    ("worlds' end", include_str!("../../src/world/heal.rs")),
    ("worlds' requests", include_str!("../../src/world/requests.rs")),
    ("worlds' sessions", include_str!("../../src/world/session.rs")),
    ("worlds' steps", include_str!("../../src/world/steps.rs")),
];

#[test]
fn the_judges_know_neither_liveness_nor_the_table() {
    for (file, source) in JUDGES {
        for name in ["fs2_ext2", "fs2_table", "Liveness", "ReplicaTable", ".table()", ".liveness()"] {
            assert!(!source.contains(name), "{file} speaks of {name}");
        }
    }
}

#[test]
fn only_the_glue_uses_the_layers_below_the_engine() {
    for (file, source) in JUDGES.into_iter().chain(OTHERS) {
        for name in ["fs2_ext2", "fs2_table", "Liveness", "ReplicaTable"] {
            assert!(!source.contains(name), "{file} speaks of {name}");
        }
    }
}
