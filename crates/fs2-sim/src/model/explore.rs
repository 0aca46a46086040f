//! Every state a world can get into, breadth first, so that the first counterexample is a shortest one.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::world::{Action, Oracle, Violation, World};

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Actions from the start at most.
    pub depth: usize,
    /// States at most.
    pub states: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { depth: usize::MAX, states: 2_000_000 }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Different states.
    pub states: usize,
    /// Steps taken: edges between states.
    pub steps: u64,
    /// Different orders in which everything can happen: paths from the start to where nothing more can,
    /// or the depth ends. At most `u128::MAX`.
    pub interleavings: u128,
    /// Actions of the longest path that was shortest to somewhere.
    pub depth: usize,
    /// Whether neither limit cut anything off.
    pub complete: bool,
    /// The first that was found, with the way there in words.
    pub violation: Option<(Violation, Vec<String>)>,
}

struct Node {
    parent: u32,
    action: Action,
    children: Vec<u32>,
}

/// Walks every state.
pub fn explore(start: &World, limits: &Limits) -> Found {
    let mut nodes = vec![Node { parent: 0, action: Action::Background, children: Vec::new() }];
    let mut seen: HashMap<u64, u32> = HashMap::from([(start.digest(), 0)]);
    let mut frontier: Vec<(u32, World)> = vec![(0, start.clone())];
    let mut found =
        Found { states: 1, steps: 0, interleavings: 0, depth: 0, complete: true, violation: None };
    while !frontier.is_empty() {
        if found.depth >= limits.depth || nodes.len() >= limits.states {
            found.complete = false;
            for (at, world) in &mut frontier {
                if let Err(v) = guarded(|| world.judge_end()) {
                    found.violation = Some((v, path(start, &nodes, *at, None)));
                    break;
                }
            }
            break;
        }
        let mut next = Vec::new();
        for (at, world) in frontier {
            let actions = world.enabled();
            if actions.is_empty()
                && let Err(v) = guarded(|| world.clone().judge_end())
            {
                found.violation = Some((v, path(start, &nodes, at, None)));
                found.states = nodes.len();
                return found;
            }
            for action in actions {
                let mut after = world.clone();
                found.steps += 1;
                if let Err(v) = guarded(|| after.step(action)) {
                    found.violation = Some((v, path(start, &nodes, at, Some(action))));
                    found.states = nodes.len();
                    found.depth += 1;
                    return found;
                }
                let id = *seen.entry(after.digest()).or_insert_with(|| {
                    let id = nodes.len() as u32;
                    nodes.push(Node { parent: at, action, children: Vec::new() });
                    next.push((id, after));
                    id
                });
                nodes[at as usize].children.push(id);
            }
        }
        found.depth += usize::from(!next.is_empty());
        frontier = next;
    }
    found.states = nodes.len();
    found.interleavings = paths(&nodes);
    found
}

/// Runs a step; a panic inside is the engine's own check. (Whoever wants silence sets a panic hook.)
pub fn guarded(f: impl FnOnce() -> Result<(), Violation>) -> Result<(), Violation> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(Violation { oracle: Oracle::Check, what: text.into() })
    })
}

fn path(start: &World, nodes: &[Node], to: u32, last: Option<Action>) -> Vec<String> {
    let mut actions: Vec<Action> = last.into_iter().collect();
    let mut at = to;
    while at != 0 {
        let node = &nodes[at as usize];
        actions.push(node.action);
        at = node.parent;
    }
    let mut world = start.clone();
    let mut said = Vec::new();
    for action in actions.into_iter().rev() {
        said.push(world.describe(action));
        // The last one breaks; it was seen to.
        let _ = guarded(|| world.step(action));
    }
    said
}

/// Paths from the start to the ends. Every action uses something up, so there are no cycles; but a
/// child may have a lower number than its parent, so the order is found first.
fn paths(nodes: &[Node]) -> u128 {
    let mut parents = vec![0u32; nodes.len()];
    for n in nodes {
        for &c in &n.children {
            parents[c as usize] += 1;
        }
    }
    let mut count = vec![0u128; nodes.len()];
    count[0] = 1;
    let mut ready = vec![0u32];
    let mut total = 0u128;
    while let Some(at) = ready.pop() {
        let node = &nodes[at as usize];
        if node.children.is_empty() {
            total = total.saturating_add(count[at as usize]);
        }
        for &c in &node.children {
            count[c as usize] = count[c as usize].saturating_add(count[at as usize]);
            parents[c as usize] -= 1;
            if parents[c as usize] == 0 {
                ready.push(c);
            }
        }
    }
    total
}
