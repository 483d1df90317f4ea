//! The container: header, sections, and tables of strings, ops, attributes, types and properties.

use super::reader::{ByteReader, Read, wrong_at};

/// What every file begins with.
pub(super) const MAGIC: &[u8] = b"ML\xefR";

/// The newest version of the container that is read.
const NEWEST: u64 = 6;

/// Versions of the container from which on it differs.
pub(super) mod since {
    /// Dialects may have versions.
    pub(crate) const DIALECT_VERSIONS: u64 = 1;
    /// Regions that see no outer values are sections.
    pub(crate) const LAZY_REGIONS: u64 = 2;
    /// The order of uses may follow a block or an instruction.
    pub(crate) const USE_ORDERS: u64 = 3;
    /// Parameters may have no location; the number of ops is told.
    pub(crate) const ELIDED_LOCATIONS: u64 = 4;
    /// Attributes of an op are encoded in an order of its own, without names.
    pub(crate) const PROPERTIES: u64 = 5;
}

/// Numbers of sections.
mod section {
    pub(super) const STRINGS: usize = 0;
    pub(super) const DIALECTS: usize = 1;
    pub(super) const ATTRIBUTES_TYPES: usize = 2;
    pub(super) const OFFSETS: usize = 3;
    pub(super) const IR: usize = 4;
    pub(super) const DIALECT_VERSIONS: usize = 7;
    pub(super) const PROPERTIES: usize = 8;
    pub(super) const COUNT: usize = 9;
}

/// The name of an op, and whether its attributes may be encoded as properties.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpName<'a> {
    pub(super) dialect: &'a str,
    pub(super) name: &'a str,
    pub(super) registered: bool,
}

/// An attribute or a type, still encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded<'a> {
    pub(super) dialect: &'a str,
    pub(super) bytes: ByteReader<'a>,
    /// By the dialect's own encoding; else it is text.
    pub(super) custom: bool,
}

/// A file whose tables have been read.
#[derive(Debug)]
pub(super) struct Container<'a> {
    pub(super) version: u64,
    pub(super) strings: Vec<&'a str>,
    pub(super) ops: Vec<OpName<'a>>,
    pub(super) attributes: Vec<Encoded<'a>>,
    pub(super) types: Vec<Encoded<'a>>,
    pub(super) properties: Vec<ByteReader<'a>>,
    pub(super) ir: ByteReader<'a>,
}

type Sections<'a> = [Option<ByteReader<'a>>; section::COUNT];

impl<'a> Container<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Read<Container<'a>> {
        let mut r = ByteReader::new(bytes, 0);
        if r.take(MAGIC.len()).ok() != Some(MAGIC) {
            return wrong_at(0, "another beginning");
        }
        let version = r.number()?;
        if version > NEWEST {
            return r.wrong(format_args!(
                "version {version} of the format, which is newer than {NEWEST}"
            ));
        }
        r.terminated()?;
        let mut sections: Sections<'a> = [None; section::COUNT];
        while !r.is_empty() {
            let (id, content) = section(&mut r)?;
            if sections[id].replace(content).is_some() {
                return content.wrong(format_args!("section {id} is there twice"));
            }
        }
        let need = |id: usize| match sections[id] {
            Some(r) => Ok(r),
            None => wrong_at(bytes.len(), format_args!("section {id} is not there")),
        };
        let strings = strings(need(section::STRINGS)?)?;
        let (dialects, ops) = dialects(need(section::DIALECTS)?, version, &strings)?;
        let tables = (need(section::OFFSETS)?, need(section::ATTRIBUTES_TYPES)?);
        let (attributes, types) = entries(tables.0, tables.1, &dialects)?;
        let properties = sections[section::PROPERTIES].map_or(Ok(Vec::new()), properties)?;
        let ir = need(section::IR)?;
        Ok(Container { version, strings, ops, attributes, types, properties, ir })
    }
}

/// A section with its number.
fn section<'a>(r: &mut ByteReader<'a>) -> Read<(usize, ByteReader<'a>)> {
    let id = r.byte()?;
    let length = r.count()?;
    if id & 0x80 != 0 {
        let alignment = r.number()?;
        r.align(alignment)?;
    }
    match usize::from(id & 0x7f) {
        id if id < section::COUNT => Ok((id, r.section(length)?)),
        id => r.wrong(format_args!("section {id}, which is not known")),
    }
}

/// The instructions of regions that see no outer values.
pub(super) fn ir_section<'a>(r: &mut ByteReader<'a>) -> Read<ByteReader<'a>> {
    match section(r)? {
        (section::IR, content) => Ok(content),
        (id, _) => r.wrong(format_args!("section {id} where instructions are expected")),
    }
}

/// All strings: their lengths, the last one's first, then their bytes with a zero behind each.
fn strings(mut r: ByteReader<'_>) -> Read<Vec<&str>> {
    let mut lengths = r.list(ByteReader::count)?;
    lengths.reverse();
    let mut all = Vec::with_capacity(lengths.len());
    for length in lengths {
        let place = r.place();
        let Some((_, bytes)) = r.take(length)?.split_last() else {
            return wrong_at(place, "a string without its end");
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => all.push(text),
            Err(_) => return wrong_at(place, "a string that is no UTF-8"),
        }
    }
    Ok(all)
}

/// What is at this place of a table.
pub(super) fn entry<'t, T>(r: &ByteReader<'_>, table: &'t [T], k: u64, what: &str) -> Read<&'t T> {
    match usize::try_from(k).ok().and_then(|k| table.get(k)) {
        Some(found) => Ok(found),
        None => r.wrong(format_args!("{what} {k} of {}", table.len())),
    }
}

/// Names of dialects, and of the ops of each.
fn dialects<'a>(
    mut r: ByteReader<'a>,
    version: u64,
    strings: &[&'a str],
) -> Read<(Vec<&'a str>, Vec<OpName<'a>>)> {
    let dialects = r.list(|r| {
        let (name, versioned) = match version < since::DIALECT_VERSIONS {
            true => (r.number()?, false),
            false => r.flagged()?,
        };
        if versioned && section(r)?.0 != section::DIALECT_VERSIONS {
            return r.wrong("another section than a dialect's version");
        }
        entry(r, strings, name, "string").copied()
    })?;
    if version >= since::ELIDED_LOCATIONS {
        r.number()?;
    }
    let mut ops = Vec::new();
    groups(&mut r, &dialects, |r, dialect| {
        let (name, registered) = match version < since::PROPERTIES {
            true => (r.number()?, false),
            false => r.flagged()?,
        };
        let name = entry(r, strings, name, "string").copied()?;
        ops.push(OpName { dialect, name, registered });
        Ok(())
    })?;
    Ok((dialects, ops))
}

/// Entries in groups, each of one dialect.
fn groups<'a>(
    r: &mut ByteReader<'a>,
    dialects: &[&'a str],
    mut read: impl FnMut(&mut ByteReader<'a>, &'a str) -> Read<()>,
) -> Read<()> {
    while !r.is_empty() {
        let dialect = r.number()?;
        let dialect = entry(r, dialects, dialect, "dialect").copied()?;
        let n = r.count()?;
        for _ in 0..n {
            read(r, dialect)?;
        }
    }
    Ok(())
}

/// Where each attribute, then each type, is encoded: one after another, each with its length.
fn entries<'a>(
    mut offsets: ByteReader<'a>,
    mut data: ByteReader<'a>,
    dialects: &[&'a str],
) -> Read<(Vec<Encoded<'a>>, Vec<Encoded<'a>>)> {
    let (attributes, types) = (offsets.count()?, offsets.count()?);
    let mut all: Vec<Encoded<'a>> = Vec::new();
    groups(&mut offsets, dialects, |r, dialect| {
        let (length, custom) = r.flagged()?;
        let length = data.fits(length)?;
        all.push(Encoded { dialect, bytes: data.section(length)?, custom });
        Ok(())
    })?;
    if all.len() != attributes + types {
        let m = format_args!("{} attributes and types, not {}", all.len(), attributes + types);
        return offsets.wrong(m);
    }
    let types = all.split_off(attributes);
    Ok((all, types))
}

/// Properties, each with its length before it.
fn properties(mut r: ByteReader<'_>) -> Read<Vec<ByteReader<'_>>> {
    r.list(|r| {
        let length = r.count()?;
        r.section(length)
    })
}
