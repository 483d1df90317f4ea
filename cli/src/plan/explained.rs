//! Explanations as JSON.

use adfuse::fusion::{Explanation, GroupRole, Obstacle, Refusal};
use adfuse::ir::Function;
use adfuse::ir::text::Names;
use serde_json::{Value, json};

/// The answer; `text` is it in plain words.
pub(super) fn json(f: &Function, found: &Explanation, text: &[String]) -> Value {
    let names = Names::of(f);
    let name = |v: adfuse::ir::Value| format!("%{}", names.get(v));
    let shared = found.together.iter().map(|t| {
        json!({
            "group": t.group,
            "roles": t.roles.map(GroupRole::words),
            "one_stage": t.one_stage(),
        })
    });
    let apart = found.apart.iter().map(|a| {
        json!({
            "value": name(a.value),
            "group": a.group,
            "chain": a.chain.iter().map(|&v| name(v)).collect::<Vec<_>>(),
            "obstacle": obstacle(a.obstacle),
        })
    });
    json!({
        "values": found.values.map(name),
        "together": !found.together.is_empty(),
        "groups": found.groups,
        "shared": shared.collect::<Vec<Value>>(),
        "apart": apart.collect::<Vec<Value>>(),
        "text": text,
    })
}

fn obstacle(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Refused(Refusal::Order(_)) => "order",
        Obstacle::Refused(Refusal::Axes(_)) => "axes",
        Obstacle::Refused(Refusal::Barrier(_)) => "barrier",
        Obstacle::Refused(Refusal::Nest) => "nest",
        Obstacle::Refused(Refusal::Row { .. }) => "row",
        Obstacle::Refused(Refusal::Rows) => "rows",
        Obstacle::Refused(Refusal::Interleaved) => "interleaved",
        Obstacle::Refused(Refusal::Kind) => "kind",
        Obstacle::Refused(Refusal::Size) => "size",
        Obstacle::Refused(Refusal::Apart) => "unrelated",
        Obstacle::Needed(_) => "needed",
        Obstacle::Unused => "unused",
        Obstacle::Given => "given",
        Obstacle::Nothing => "nothing",
    }
}
