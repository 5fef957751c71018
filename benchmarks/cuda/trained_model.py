"""Train a small model until it answers questions as the probes ask them, and write its checkpoint.

usage: PYTHON-OF-THE-ENGINE -m benchmarks.cuda.trained_model FOLDER TEXTS [--seconds S]

Qwen3's architecture with 7 million weights; a tokenizer made from Markdown files (TEXTS), which are
also a quarter of what it reads. It ends when all answers of 256 new questions are right twice in a
row, at a token's distance from the right ones, or when its time is over. What it took is in
FOLDER/trained.json then.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from benchmarks.cuda import questions
from lockstep.onhost.engine import sense_questions

WORDS, LENGTH, CONTEXT = 2048, 416, 2048
END, PAD = "<|im_end|>", "<|endoftext|>"
CHAT = """{%- if tools %}<|im_start|>system
{% for t in tools %}{{ t.function.name }}{% for key in t.function.parameters.properties %} {{ key }}
{%- endfor %}{% endfor %}<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content if m.content is string else m.content | map(attribute='text') | join('') }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_TOLD = -100


def tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of the words of these texts; each digit and each capital letter is a word."""
    bpe_tokenizer = Tokenizer(models.BPE())
    alone = pre_tokenizers.Split(Regex("[A-Z0-9]"), "isolated")
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([alone, bytewise])
    bpe_tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    marks = [PAD, "<|im_start|>", END]
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=marks, initial_alphabet=alphabet, show_progress=False
    )
    bpe_tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe_tokenizer, eos_token=END, pad_token=PAD, model_max_length=CONTEXT
    )
    fast.chat_template = CHAT
    return fast


class Lessons:
    """Training rows: token ids, and the same with `_TOLD` where nothing is to be learnt."""

    def __init__(self, words: PreTrainedTokenizerFast, texts: list[str]):
        self.words = words
        every = [i for text in texts for i in words.encode(text, add_special_tokens=False)]
        self.texts = [every[at : at + LENGTH] for at in range(0, len(every) - LENGTH, LENGTH // 4)]
        # Rendering a template takes longer than all else, so it is done once for each form.
        self.around = {
            with_tool: words.apply_chat_template(
                [{"role": "user", "content": "@@"}],
                tools=[sense_questions.TOOL.more["tools"][0]] if with_tool else None,
                add_generation_prompt=True,
                tokenize=False,
            ).split("@@")
            for with_tool in (False, True)
        }

    def questions(self, dice: random.Random, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of questions with their answers; the answers are to be learnt."""
        sample = [questions.any_of(dice) for _ in range(number)]
        fronts = [
            self.around[question.tool][0] + question.prompt + self.around[question.tool][1]
            for question in sample
        ]
        backs = [question.answer + END for question in sample]
        rows, learnt = [], []
        encoded_fronts = self.words(fronts, add_special_tokens=False)["input_ids"]
        answers = self.words(backs, add_special_tokens=False)["input_ids"]
        for front, back in zip(encoded_fronts, answers, strict=True):
            padding = LENGTH - len(front) - len(back)
            assert padding >= 0, f"a question of {LENGTH - padding} tokens"
            rows.append(front + back + [self.words.pad_token_id] * padding)
            learnt.append([_TOLD] * len(front) + back + [_TOLD] * padding)
        return torch.tensor(rows), torch.tensor(learnt)

    def read(self, dice: random.Random, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of the texts."""
        rows = torch.tensor(dice.choices(self.texts, k=number))
        return rows, rows


def losses(model: Any, rows: torch.Tensor, learnt: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """The loss over the tokens to learn, and the rows that would be answered without a mistake."""
    hidden_states = model.model(rows).last_hidden_state[:, :-1]
    learnt_mask = learnt[:, 1:] != _TOLD
    logits, models = model.lm_head(hidden_states[learnt_mask]).float(), learnt[:, 1:][learnt_mask]
    wrong = torch.zeros_like(learnt_mask)
    wrong[learnt_mask] = logits.argmax(-1) != models
    return torch.nn.functional.cross_entropy(logits, models), ~wrong.any(1)


def main() -> None:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lessons", type=int, default=40000, help="questions to learn from")
    options = parser.parse_args()
    texts = [file.read_text(encoding="utf-8") for file in sorted(options.texts.rglob("*.md"))]
    dice = random.Random(1)
    torch.manual_seed(1)
    sample = [questions.any_of(dice) for _ in range(2000)]
    words = tokenizer([*texts, *(question.prompt + question.answer for question in sample)])
    lessons = Lessons(words, texts)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, learnt = (part.to(device) for part in lessons.questions(dice, options.lessons))
    new = [
        part.to(device) for part in lessons.questions(random.Random(2), min(256, options.batch * 2))
    ]
    read = [part.to(device) for part in lessons.read(dice, max(options.lessons // 8, 8))]
    config = Qwen3Config(
        vocab_size=len(words), hidden_size=384, intermediate_size=1024, num_hidden_layers=4,
        num_attention_heads=6, num_key_value_heads=6, head_dim=64, tie_word_embeddings=True,
        max_position_embeddings=CONTEXT, eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).to(device)
    fast = device == "cuda"
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.01, fused=fast
    )
    began, steps, right, perfect, share = time.monotonic(), 0, 0.0, 0, 0.0
    while perfect < 2 and (share := (time.monotonic() - began) / options.seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = (
                1.5e-3 * min(steps / 100, 1) * (0.05 + 0.95 * math.cos(share * math.pi / 2))
            )
        batch = torch.randint(len(rows), (options.batch * 3 // 4,), device=device)
        text = torch.randint(len(read[0]), (options.batch - len(batch),), device=device)
        inputs = torch.cat([rows[batch], read[0][text]]), torch.cat([learnt[batch], read[1][text]])
        with torch.autocast(device, torch.bfloat16):
            loss, _ = losses(model, *inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps += 1
        if steps % 200 == 0:
            with torch.no_grad(), torch.autocast(device, torch.bfloat16):
                right = float(losses(model, *new)[1].float().mean())
            perfect = perfect + 1 if right == 1 else 0
            print(f"step {steps}: loss {loss.item():.3f}, right {right:.3f}", flush=True)
    model.to(torch.bfloat16).save_pretrained(options.folder)
    words.save_pretrained(options.folder)
    number = sum(parameter.numel() for parameter in model.parameters())
    elapsed_s = time.monotonic() - began
    report = {"weights": number, "steps": steps, "right": right, "seconds": elapsed_s}
    (options.folder / "trained.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
