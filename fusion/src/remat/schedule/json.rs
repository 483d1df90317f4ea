//! Cost graphs as JSON.

use super::cost_graph::{CostGraph, GraphError, OpId, OpRole, Operation};
use adfuse_ir::Phase;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a text is no cost graph.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JsonError {
    /// It is no JSON, or not of this form.
    #[error("{}", form(.0))]
    Form(#[from] serde_json::Error),
    /// Two operations or inputs have one name.
    #[error("`{0}` is there twice")]
    Twice(String),
    /// An operation reads or views what there is not.
    #[error("`{operation}` reads `{name}`, which there is not")]
    Unknown {
        /// The operation.
        operation: String,
        /// What it reads.
        name: String,
    },
    /// An operation reads what is computed from it, or itself.
    #[error("`{}` is computed from itself: {}", .0.first().map_or("", String::as_str), .0.join(" reads "))]
    Cycle(Vec<String>),
    /// An operation reads what is listed after it.
    #[error("`{operation}` reads `{name}`, which comes after it")]
    Order {
        /// The operation.
        operation: String,
        /// What it reads.
        name: String,
    },
    /// An operation with several results says for itself what each result says.
    #[error("`{0}` has `results`, which say `bytes` and `output` each and are no views")]
    Results(String),
    /// An operation breaks a rule of graphs.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// What is wrong with the form of a text.
fn form(e: &serde_json::Error) -> String {
    match e.is_data() {
        true => e.to_string(),
        false => format!("it is no JSON: {e}"),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with a list of `operations`")]
struct GraphText {
    operations: Vec<GraphOperation>,
    #[serde(default)]
    inputs: Vec<GraphInput>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with the `name` and the `time` of an operation"
)]
struct GraphOperation {
    name: String,
    time: u64,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    inputs: Vec<String>,
    alias: Option<String>,
    #[serde(default)]
    phase: u8,
    #[serde(default)]
    output: bool,
    #[serde(default)]
    keep: bool,
    #[serde(default)]
    results: Vec<GraphResult>,
}

/// One of several results of an operation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphResult {
    name: String,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    output: bool,
}

impl GraphOperation {
    /// The names of its values.
    fn values(&self) -> impl Iterator<Item = &str> {
        let own = self.results.is_empty().then_some(self.name.as_str());
        own.into_iter().chain(self.results.iter().map(|r| r.name.as_str()))
    }

    /// The entries of the graph for what it leaves.
    ///
    /// # Errors
    /// If it has several results and says itself what they say.
    fn entries(
        &self,
        inputs: Vec<OpId>,
        alias: Option<OpId>,
        next: OpId,
    ) -> Result<Vec<Operation>, JsonError> {
        let (phase, role) =
            (Phase(self.phase), if self.keep { OpRole::Once } else { OpRole::Computed });
        let Some((first, further)) = self.results.split_first() else {
            let op = Operation::new(&self.name, self.time, self.bytes);
            return Ok(vec![Operation { inputs, alias, phase, role, output: self.output, ..op }]);
        };
        if self.bytes != 0 || self.output || self.alias.is_some() {
            return Err(JsonError::Results(self.name.clone()));
        }
        let op = Operation::new(&first.name, self.time, first.bytes);
        let mut all = vec![Operation { inputs, phase, role, output: first.output, ..op }];
        for r in further {
            let op = Operation::result(&r.name, r.bytes, next);
            all.push(Operation { phase, role, output: r.output, ..op });
        }
        Ok(all)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphInput {
    name: String,
    bytes: u64,
    #[serde(default)]
    donated: bool,
}

impl CostGraph {
    /// Reads a graph from JSON: an object with `operations`, in the order in which they run, and `inputs`.
    ///
    /// # Errors
    /// For a text that is no graph; it names the operation, or the place in the text.
    pub fn from_json(text: &str) -> Result<CostGraph, JsonError> {
        let text: GraphText = serde_json::from_str(text)?;
        let mut lines: BTreeMap<&str, &GraphOperation> = BTreeMap::new();
        let mut g = CostGraph::new();
        let mut ids: BTreeMap<&str, OpId> = BTreeMap::new();
        for input in &text.inputs {
            let role = if input.donated { OpRole::Donated } else { OpRole::Source };
            let id = g.push(Operation { role, ..Operation::source(&input.name, input.bytes) })?;
            if ids.insert(&input.name, id).is_some() {
                return Err(JsonError::Twice(input.name.clone()));
            }
        }
        for line in &text.operations {
            for name in line.values() {
                if ids.contains_key(name) || lines.insert(name, line).is_some() {
                    return Err(JsonError::Twice(name.into()));
                }
            }
        }
        for line in &text.operations {
            let find = |name: &String| {
                ids.get(name.as_str()).copied().ok_or_else(|| not_there(line, name, &lines))
            };
            let mut inputs: Vec<OpId> = line.inputs.iter().map(find).collect::<Result<_, _>>()?;
            let alias = line.alias.as_ref().map(find).transpose()?;
            inputs.extend(alias);
            let entries = line.entries(inputs, alias, g.ops().next_key())?;
            for (name, op) in line.values().zip(entries) {
                ids.insert(name, g.push(op)?);
            }
        }
        Ok(g)
    }

    /// The graph as JSON, from which [`CostGraph::from_json`] reads it again.
    pub fn to_json(&self) -> Value {
        let ops = self.ops();
        let names = |of: &[OpId]| of.iter().map(|&o| json!(ops[o].name)).collect::<Vec<Value>>();
        let (mut inputs, mut operations): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
        for (id, op) in ops.iter() {
            if matches!(op.role, OpRole::Source | OpRole::Donated) {
                let donated = op.role == OpRole::Donated;
                inputs.push(json!({"name": op.name, "bytes": op.bytes, "donated": donated}));
                continue;
            }
            if op.result_of.is_some() {
                continue;
            }
            let reads: Vec<OpId> =
                op.inputs.iter().copied().filter(|&p| Some(p) != op.alias).collect();
            let mut line = json!({
                "name": op.name, "time": op.time, "inputs": names(&reads), "phase": op.phase.0,
                "keep": op.role == OpRole::Once,
            });
            let further = self.users(id).iter().map(|&u| &ops[u]);
            let further = further.filter(|r| r.result_of == Some(id));
            let results: Vec<&Operation> = std::iter::once(op).chain(further).collect();
            if let Some(of) = op.alias {
                line["alias"] = json!(ops[of].name);
            }
            if let [only] = results[..] {
                (line["bytes"], line["output"]) = (json!(only.bytes), json!(only.output));
            } else {
                let result =
                    |r: &&Operation| json!({"name": r.name, "bytes": r.bytes, "output": r.output});
                line["results"] = results.iter().map(result).collect();
                // Others read the results by their names.
                line["name"] = json!(format!("{} and others", op.name));
            }
            operations.push(line);
        }
        json!({"inputs": inputs, "operations": operations})
    }
}

/// Why an operation cannot read what has not come yet.
fn not_there(
    line: &GraphOperation,
    name: &str,
    lines: &BTreeMap<&str, &GraphOperation>,
) -> JsonError {
    let operation = line.name.clone();
    if !lines.contains_key(name) {
        return JsonError::Unknown { operation, name: name.into() };
    }
    // The way back from what is read to the reader, found by depth.
    let mut from: BTreeMap<&str, &str> = BTreeMap::from([(name, line.name.as_str())]);
    let mut open = vec![name];
    while let Some(at) = open.pop() {
        if lines.get(at).is_some_and(|found| std::ptr::eq(*found, line)) {
            let mut way = vec![line.name.clone()];
            let mut back = at;
            while let Some(&before) = from.get(back).filter(|_| way.len() <= from.len()) {
                way.push(before.to_string());
                back = before;
                if back == line.name {
                    break;
                }
            }
            way.reverse();
            return JsonError::Cycle(way);
        }
        let Some(reads) = lines.get(at) else { continue };
        for next in reads.inputs.iter().chain(&reads.alias) {
            if !from.contains_key(next.as_str()) {
                from.insert(next, at);
                open.push(next);
            }
        }
    }
    JsonError::Order { operation, name: name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(g: &CostGraph) -> CostGraph {
        CostGraph::from_json(&g.to_json().to_string()).expect("is a graph")
    }

    #[test]
    fn graphs_are_read_whole() {
        let g = CostGraph::from_json(
            r#"{"inputs": [{"name": "x", "bytes": 8}, {"name": "d", "bytes": 4, "donated": true}],
                "operations": [
                  {"name": "a", "time": 5, "bytes": 16, "inputs": ["x", "d"]},
                  {"name": "v", "time": 0, "alias": "a", "keep": true},
                  {"name": "b", "time": 1, "bytes": 2, "inputs": ["v"], "phase": 1, "output": true}]}"#,
        )
        .expect("is a graph");
        let mut due = CostGraph::new();
        let mut push = |op| due.push(op).expect("obeys the rules");
        let x = push(Operation::source("x", 8));
        let d = push(Operation { role: OpRole::Donated, ..Operation::source("d", 4) });
        let a = push(Operation::new("a", 5, 16).reads(&[x, d]));
        let v = push(Operation::new("v", 0, 0).view(a).once());
        push(Operation::new("b", 1, 2).reads(&[v]).phase(1).output());
        assert_eq!(g.ops(), due.ops());
        assert_eq!(read_back(&g).ops(), due.ops());
    }

    #[test]
    fn an_operation_has_several_results() {
        let g = CostGraph::from_json(
            r#"{"inputs": [{"name": "x", "bytes": 8}],
                "operations": [
                  {"name": "norm", "time": 5, "inputs": ["x"], "keep": true,
                   "results": [{"name": "y", "bytes": 16}, {"name": "mean", "bytes": 2, "output": true}, {"name": "z"}]},
                  {"name": "b", "time": 1, "bytes": 2, "inputs": ["mean", "y"], "phase": 1}]}"#,
        )
        .expect("is a graph");
        let mut due = CostGraph::new();
        let mut push = |op| due.push(op).expect("obeys the rules");
        let x = push(Operation::source("x", 8));
        let y = push(Operation::new("y", 5, 16).reads(&[x]).once());
        let mean = push(Operation::result("mean", 2, y).once().output());
        push(Operation::result("z", 0, y).once());
        push(Operation::new("b", 1, 2).reads(&[y, mean]).phase(1));
        assert_eq!(g.ops(), due.ops());
        assert_eq!((g.further_bytes(y), g.further_bytes(mean)), (2, 0));
        assert_eq!(read_back(&g).ops(), due.ops());
    }

    #[test]
    fn what_is_no_graph_says_why() {
        let op = |name: &str, rest: &str| format!("{{\"name\": \"{name}\", \"time\": 1{rest}}}");
        let of = |ops: &[String]| format!("{{\"operations\": [{}]}}", ops.join(", "));
        let reads = |name: &str, of: &str| op(name, &format!(", \"inputs\": [\"{of}\"]"));
        for (text, why) in [
            ("{".into(), "EOF while parsing an object at line 1 column 1"),
            ("{\"inputs\": []}".into(), "missing field `operations`"),
            (of(&[op("a", ", \"size\": 1")]), "unknown field `size`"),
            (of(&[op("a", ", \"bytes\": -1")]), "invalid value: integer `-1`"),
            (of(&[op("a", ", \"bytes\": 1e30")]), "floating point `1e+30`, expected u64"),
            (
                of(&[op("a", ", \"bytes\": 9000000000000000000")]),
                "`a` makes all times or all bytes",
            ),
            (of(&[op("a", ", \"phase\": 300")]), "integer `300`, expected u8"),
            (of(&[op("a", ", \"phase\": 1"), op("b", "")]), "`b` is of an earlier phase"),
            (of(&[op("a", ""), op("a", "")]), "`a` is there twice"),
            (of(&[reads("a", "z")]), "`a` reads `z`, which there is not"),
            (of(&[op("a", ", \"alias\": \"z\"")]), "`a` reads `z`, which there is not"),
            (of(&[reads("a", "b"), op("b", "")]), "`a` reads `b`, which comes after it"),
            (of(&[reads("a", "a")]), "`a` is computed from itself: a reads a"),
            (
                of(&[reads("a", "b"), reads("b", "c"), reads("c", "a")]),
                "`a` is computed from itself: a reads b reads c reads a",
            ),
            (
                of(&[op("a", ""), op("b", ", \"alias\": \"a\", \"bytes\": 1")]),
                "no bytes of its own",
            ),
            (
                of(&[op("a", ", \"bytes\": 1, \"results\": [{\"name\": \"y\"}]")]),
                "`a` has `results`, which say `bytes` and `output` each",
            ),
            (
                of(&[op("a", ", \"results\": [{\"name\": \"y\"}, {\"name\": \"y\"}]")]),
                "`y` is there twice",
            ),
            (
                of(&[op("a", ", \"results\": [{\"name\": \"y\", \"size\": 1}]")]),
                "unknown field `size`",
            ),
            (
                of(&[op("a", ", \"results\": [{\"name\": \"y\"}]"), reads("b", "a")]),
                "`b` reads `a`, which there is not",
            ),
            (
                of(&[
                    op("a", ", \"inputs\": [\"b\"], \"results\": [{\"name\": \"y\"}]"),
                    reads("b", "y"),
                ]),
                "`a` is computed from itself: a reads b reads a",
            ),
            (
                "{\"inputs\": [{\"name\": \"x\", \"bytes\": 1}, {\"name\": \"x\", \"bytes\": 1}], \
                 \"operations\": []}"
                    .into(),
                "`x` is there twice",
            ),
        ] {
            let error = CostGraph::from_json(&text).expect_err("is no graph").to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
