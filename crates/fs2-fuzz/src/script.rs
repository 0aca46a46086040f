//! A script in FileBench's language: an error with its place, or a model that means the same each time, can be scaled,
//! whose random variables end, and whose small filesets are the trees they say.

use fs2_wml::Script;
use fs2_wml::dist::Rng;
use fs2_wml::model::{Amount, Model, Op};
use fs2_wml::tree::Tree;

/// Filesets of more are not grown here: their trees are as large as the script says.
const ENTRIES_MAX: u64 = 500;

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let model = match Script::parse("fuzz.f", &text).and_then(|script| script.build(&[])) {
        Ok(model) => model,
        Err(e) => {
            assert!(e.pos.line >= 1 && e.pos.column >= 1 && e.to_string().starts_with("fuzz.f:"), "{e}");
            return;
        }
    };
    let again = Script::parse("fuzz.f", &text).and_then(|script| script.build(&[]));
    assert_eq!(again.as_ref(), Ok(&model), "a script means one thing");
    drop(again);
    let mut rng = Rng::new(1, data.len() as u64);
    draw(&model, &mut rng);
    for spec in model.filesets.iter().filter(|s| s.entries + s.leafdirs <= ENTRIES_MAX).take(4) {
        let tree = Tree::grow(spec, &mut rng);
        let grown = (tree.files.len() as u64, tree.sizes.len() as u64, tree.leafdirs.len() as u64);
        assert_eq!(grown, (spec.entries, spec.entries, spec.leafdirs));
    }
    let mut scaled = model;
    let threads = scaled.threads();
    scaled.scale(0.3);
    assert_eq!(scaled.threads(), threads);
}

/// Every amount of the model once, of composites the first few.
fn draw(model: &Model, rng: &mut Rng) {
    let mut one = |amount: &Amount| {
        let x = amount.draw_f64(rng);
        assert!(x.is_finite() && x >= 0.0, "{x} of {amount:?}");
    };
    for spec in &model.filesets {
        [&spec.size, &spec.dirwidth].into_iter().chain(&spec.dirdepth).for_each(&mut one);
    }
    let mut rest: Vec<&Op> = model.processes.iter().flat_map(|p| &p.threads).flat_map(|t| &t.ops).collect();
    for _ in 0..200 {
        let Some(op) = rest.pop() else { break };
        [&op.iters, &op.iosize, &op.value].into_iter().chain(&op.indexed).for_each(&mut one);
        rest.extend(&op.inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that were refused would lead nowhere.
    #[test]
    fn the_seeds_are_accepted_or_refused_for_what_they_are() {
        let build = |text: &str| Script::parse("seed", text).and_then(|script| script.build(&[]));
        for seed in [
            include_str!("../../../fuzz/seeds/wml_script/every-statement"),
            include_str!("../../../fuzz/seeds/wml_script/laws"),
            include_str!("../../../fuzz/seeds/wml_script/far-numbers"),
            include_str!("../../../fuzz/seeds/wml_script/long-text"),
        ] {
            build(seed).unwrap_or_else(|e| panic!("{e}"));
        }
        let doubling = build(include_str!("../../../fuzz/seeds/wml_script/doubling")).unwrap_err();
        assert!(doubling.to_string().contains("more than 20000 flowops"), "{doubling}");
    }

    /// As a script of 1e308: its mean, at once.
    #[test]
    fn a_gamma_of_any_shape_ends() {
        let text = "set $a=cvar(type=cvar-gamma,parameters=mean:5000;gamma:1e308)\ndefine file name=f,path=/t,size=$a";
        let model = Script::parse("far.f", text).and_then(|script| script.build(&[])).unwrap();
        let size = model.filesets[0].size.draw_f64(&mut Rng::new(1, 1));
        assert!((size - 5000.0).abs() < 0.01, "{size}");
    }
}
