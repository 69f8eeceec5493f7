//! A full-text index in memory, which both versions of the program `index` serve.

use std::collections::HashMap;

/// The terms of a text. To make it is the work that takes long.
#[derive(Debug)]
pub struct Document {
    terms: HashMap<String, u32>,
    length: u32,
}

impl Document {
    /// Takes a text apart into its words and, for words that are not spelt right, the groups of
    /// three letters in them.
    pub fn parse(text: &str) -> Document {
        let mut document = Document { terms: HashMap::new(), length: 0 };
        for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|w| !w.is_empty()) {
            let letters: Vec<char> = word.to_lowercase().chars().collect();
            document.length += 1;
            for group in letters.windows(3) {
                *document.terms.entry(group.iter().collect()).or_default() += 1;
            }
            *document
                .terms
                .entry(format!("={}", letters.iter().collect::<String>()))
                .or_default() += 1;
        }
        document
    }
}

/// The documents by their terms.
#[derive(Debug, Default)]
pub struct Index {
    postings: HashMap<String, Vec<(usize, f32)>>,
    documents: usize,
}

impl Index {
    /// Adds a document, and returns its number.
    pub fn add(&mut self, document: Document) -> usize {
        let number = self.documents;
        self.documents += 1;
        for (term, count) in document.terms {
            let weight = count as f32 / document.length as f32;
            self.postings.entry(term).or_default().push((number, weight));
        }
        number
    }

    /// Returns the number of documents.
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// Returns the numbers of the documents that fit best, at most `limit`.
    pub fn search(&self, query: &str, limit: usize) -> Vec<usize> {
        let mut scores: HashMap<usize, f32> = HashMap::new();
        for term in Document::parse(query).terms.into_keys() {
            let found = self.postings.get(&term).map_or(&[][..], Vec::as_slice);
            let rareness = (1.0 + self.documents as f32 / (1.0 + found.len() as f32)).ln();
            for (number, weight) in found {
                *scores.entry(*number).or_default() += weight * rareness;
            }
        }
        let mut best: Vec<_> = scores.into_iter().collect();
        best.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        best.into_iter().take(limit).map(|(number, _)| number).collect()
    }
}
