//! What the assembler says of each kernel: registers, and values that did not fit into them.

use std::fmt;

/// One kernel for one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its name as the linker sees it.
    pub symbol: String,
    /// The compute capability, such as 86.
    pub arch: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's stack.
    pub stack_bytes: u32,
    /// Bytes that are written to memory for want of registers.
    pub spill_store_bytes: u32,
    /// Bytes that are read back.
    pub spill_load_bytes: u32,
    /// Bytes of shared memory whose size is fixed.
    pub shared_bytes: u32,
}

impl Kernel {
    /// Whether a value did not fit into registers.
    pub fn spills(&self) -> bool {
        self.spill_store_bytes + self.spill_load_bytes > 0
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} registers, {} B of stack, {} B of shared memory, spills {} B and reads back {} B",
            self.registers,
            self.stack_bytes,
            self.shared_bytes,
            self.spill_store_bytes,
            self.spill_load_bytes
        )
    }
}

/// Reads the report that `-Xptxas -v` makes. Functions that are called, and not launched, are no kernels.
pub fn kernels(report: &str) -> Vec<Kernel> {
    let mut found = Vec::new();
    let mut open: Option<Kernel> = None;
    let mut inside = false;
    for line in report.lines() {
        if let Some((symbol, arch)) = entry(line) {
            open = Some(blank(symbol, arch));
        } else if let Some(of) = after(line, "Function properties for ") {
            inside = open
                .as_ref()
                .is_some_and(|kernel| kernel.symbol == of.trim());
        } else if let (Some(kernel), true) =
            (&mut open, inside && line.contains("bytes stack frame"))
        {
            kernel.stack_bytes = number_before(line, "bytes stack frame").unwrap_or_default();
            kernel.spill_store_bytes =
                number_before(line, "bytes spill stores").unwrap_or_default();
            kernel.spill_load_bytes = number_before(line, "bytes spill loads").unwrap_or_default();
        } else if let Some(registers) = number_before(line, "registers")
            && let Some(mut kernel) = open.take()
        {
            kernel.registers = registers;
            kernel.shared_bytes = number_before(line, "bytes smem").unwrap_or_default();
            found.push(kernel);
        }
    }
    found
}

fn blank(symbol: &str, arch: u32) -> Kernel {
    Kernel {
        symbol: symbol.to_owned(),
        arch,
        registers: 0,
        stack_bytes: 0,
        spill_store_bytes: 0,
        spill_load_bytes: 0,
        shared_bytes: 0,
    }
}

/// `.. Compiling entry function 'NAME' for 'sm_86'`
fn entry(line: &str) -> Option<(&str, u32)> {
    let (symbol, rest) = after(line, "Compiling entry function '")?.split_once("' for 'sm_")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((symbol, digits.parse().ok()?))
}

fn after<'a>(line: &'a str, text: &str) -> Option<&'a str> {
    line.split_once(text).map(|(_, rest)| rest)
}

/// The number in front of `unit`.
fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    before.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "ptxas info    : 77 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90'
ptxas info    : Function properties for _Z6calledv
    16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for _Z1kPf
    48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size, 8464 bytes smem
ptxas info    : Compile time = 10.004 ms
ptxas info    : Compiling entry function '_Z1gv' for 'sm_120a'
ptxas info    : Function properties for _Z1gv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
";

    #[test]
    fn registers_and_spills_of_each_kernel_are_read() {
        let found = kernels(REPORT);
        assert_eq!(found.len(), 2);
        let first = &found[0];
        assert_eq!(
            (first.symbol.as_str(), first.arch, first.registers),
            ("_Z1kPf", 90, 255)
        );
        let spills = (
            first.stack_bytes,
            first.spill_store_bytes,
            first.spill_load_bytes,
        );
        assert_eq!((spills, first.shared_bytes), ((48, 40, 44), 8464));
        assert!(first.spills());
        let second = &found[1];
        assert_eq!(
            (second.arch, second.registers, second.spills()),
            (120, 12, false)
        );
    }

    #[test]
    fn a_text_without_kernels_has_none() {
        assert!(kernels("").is_empty());
        assert!(kernels("ptxas info : 0 bytes gmem\nUsed 3 registers\n").is_empty());
    }
}
