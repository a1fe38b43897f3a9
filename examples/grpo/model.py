"""A small decoder-only transformer over characters, and the arithmetic task that it learns."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

CHARS = "0123456789+=."
END = CHARS.index(".")
PROMPT_LENGTH = 4  # "3+5="
ANSWER_LENGTH = 3  # "8." or "12."


def encode(text: str) -> list[int]:
    return [CHARS.index(char) for char in text]


def make_prompts(count: int, rng: random.Random) -> tuple[Tensor, list[int]]:
    """Prompts [count, PROMPT_LENGTH] and the sums that answer them."""
    pairs = [(rng.randrange(10), rng.randrange(10)) for _ in range(count)]
    return torch.tensor([encode(f"{a}+{b}=") for a, b in pairs]), [a + b for a, b in pairs]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Logits [batch, length, chars] of tokens [batch, length]."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(CHARS), width)
        self.positions = nn.Embedding(PROMPT_LENGTH + ANSWER_LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(CHARS))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def log_probs(model: Transformer, sequences: Tensor) -> Tensor:
    """Log-probabilities [batch, ANSWER_LENGTH] of the answer tokens of whole sequences."""
    logits = model(sequences[:, :-1])[:, PROMPT_LENGTH - 1 :]
    return logits.log_softmax(-1).gather(-1, sequences[:, PROMPT_LENGTH:, None]).squeeze(-1)


@torch.no_grad()
def generate(model: Transformer, prompts: Tensor, generator: torch.Generator) -> Tensor:
    """Sampled answers appended to the prompts: [batch, PROMPT_LENGTH + ANSWER_LENGTH]; after an END only ENDs."""
    sequences, done = prompts, torch.zeros(len(prompts), 1, dtype=torch.bool)
    for _ in range(ANSWER_LENGTH):
        probabilities = model(sequences)[:, -1].softmax(-1)
        token = torch.multinomial(probabilities, 1, generator=generator).masked_fill(done, END)
        done |= token == END
        sequences = torch.cat([sequences, token], dim=1)
    return sequences


def reward_of(sequence: Tensor, answer: int) -> float:
    """Rule: 1 for the right sum, 0.1 for a well-formed number, else 0."""
    text = "".join(CHARS[token] for token in sequence[PROMPT_LENGTH:].tolist())
    number, end, rest = text.partition(".")
    if not end or not number.isdigit() or rest.strip("."):
        return 0.0
    return 1.0 if int(number) == answer else 0.1
