//! The choices of a kernel of rows, and their text.

use super::cooperative_row::Team;
use super::grid::Grid;
use super::text::{DecisionLine, Reader, Writer, entity, listed, number, wrong};
use super::tree_fold::Tree;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::Tile;
use std::fmt::Display;

/// Which rows a team has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowWalk {
    /// One.
    One,
    /// A chain of this many consecutive rows, along the columns that are folded.
    Chain(i64),
    /// Rows a grid apart: each block takes one of as many rows as there are blocks.
    Stride,
}

/// How the loop over a thread's elements of a stage is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StageUnroll {
    /// The number of the stage.
    pub(crate) stage: usize,
    /// Groups of neighbours that have a text of their own.
    pub(crate) text: i64,
    /// Groups whose loads are under way together.
    pub(crate) inflight: i64,
    /// The parameter with which places are compared, where groups that have no such place have a text without
    /// the comparison.
    pub(crate) matched: Option<usize>,
}

/// How a kernel of rows is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RowDecision {
    pub(crate) team: Team,
    pub(crate) walk: RowWalk,
    /// Rows of prefetched arrays that there is room for: 1 where a row is copied over the one that was read, 2 where one
    /// is copied while another is read, 0 where none is prefetched.
    pub(crate) copies: i64,
    /// Tiles that are computed again wherever they are read.
    pub(crate) recomputed: Vec<Tile>,
    /// Tiles in registers; others that are kept are in shared memory, or are arrays that were prefetched.
    pub(crate) registers: Vec<Tile>,
    /// Loads, by stage and parameter, that give the same for each row of a chain: they are done once.
    pub(crate) hoisted: Vec<(usize, usize)>,
    /// Blocks that a multiprocessor shall have at a time.
    pub(crate) resident: u32,
    pub(crate) unrolls: Vec<StageUnroll>,
    /// How the parts of folded columns are joined.
    pub(crate) tree: Tree,
}

impl DecisionLine for RowDecision {
    fn write(&self, to: &mut Writer) {
        let Team { threads, teams, piece, width } = &self.team;
        to.line(
            "team",
            &[
                ("threads", threads),
                ("rows", teams),
                ("block", piece),
                ("vector", width),
                ("resident", &self.resident),
            ],
        );
        match self.walk {
            RowWalk::One => to.line("walk", &[("by", &"one")]),
            RowWalk::Chain(rows) => to.line("walk", &[("by", &"chain"), ("rows", &rows)]),
            RowWalk::Stride => to.line("walk", &[("by", &"stride")]),
        }
        let tiles = |tiles: &[Tile]| listed(tiles.iter());
        let (registers, recomputed) = (tiles(&self.registers), tiles(&self.recomputed));
        to.line("residency", &[("registers", &registers), ("recompute", &recomputed)]);
        let hoisted = listed(self.hoisted.iter().map(|(s, k)| format!("{s}.{k}")));
        to.line("prefetch", &[("rows", &self.copies), ("hoist", &hoisted)]);
        for StageUnroll { stage, text, inflight, matched } in &self.unrolls {
            let mut fields: Vec<(&str, &dyn Display)> =
                vec![("number", stage), ("unroll", text), ("inflight", inflight)];
            fields.extend(matched.iter().map(|k| ("match", k as &dyn Display)));
            to.line("stage", &fields);
        }
        if let RowWalk::Chain(_) = self.walk {
            self.tree.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<RowDecision, Diagnostic> {
        let line = from.line("team", &["threads", "rows", "block", "vector", "resident"])?;
        let grid = Grid::of_line(&line)?;
        let team = Team {
            threads: grid.threads,
            teams: line.int("rows")?,
            piece: line.int("block")?,
            width: line.int("vector")?,
        };
        let line = from.line("walk", &["by", "rows"])?;
        let walk = match line.word("by")? {
            ("one", _) => RowWalk::One,
            ("stride", _) => RowWalk::Stride,
            ("chain", _) => RowWalk::Chain(line.int("rows")?),
            (other, span) => return Err(wrong(span, format!("rows are not walked by `{other}`"))),
        };
        let keys: &[&str] = if let RowWalk::Chain(_) = walk { &["by", "rows"] } else { &["by"] };
        line.only(keys)?;
        let line = from.line("residency", &["registers", "recompute"])?;
        let tiles = |key: &str| -> Result<Vec<Tile>, Diagnostic> {
            let all = line.list(key)?.into_iter();
            all.map(|(word, span)| Ok(Tile::from_u32(entity(word, 't', span)?))).collect()
        };
        let (registers, recomputed) = (tiles("registers")?, tiles("recompute")?);
        let line = from.line("prefetch", &["rows", "hoist"])?;
        let load = |(word, span): (&str, _)| match word.split_once('.') {
            Some((s, k)) => Ok((number(s, span)? as usize, number(k, span)? as usize)),
            None => Err(wrong(span, format!("`{word}` is no `STAGE.PARAMETER`"))),
        };
        let hoisted = line.list("hoist")?.into_iter().map(load).collect::<Result<_, _>>()?;
        let copies = line.int("rows")?;
        let mut unrolls = Vec::new();
        while from.next() == Some("stage") {
            let line = from.line("stage", &["number", "unroll", "inflight", "match"])?;
            let stage = line.int("number")? as usize;
            let (text, inflight) = (line.int("unroll")?, line.int("inflight")?);
            let matched = line.word("match").ok();
            let matched = matched.map(|(k, span)| number(k, span)).transpose()?;
            let matched = matched.map(|k| k as usize);
            unrolls.push(StageUnroll { stage, text, inflight, matched });
        }
        let tree = match walk {
            RowWalk::Chain(_) => Tree::read(from)?,
            _ => Tree::default(),
        };
        let resident = grid.resident;
        Ok(RowDecision {
            team,
            walk,
            copies,
            recomputed,
            registers,
            hoisted,
            resident,
            unrolls,
            tree,
        })
    }
}
