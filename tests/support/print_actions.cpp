// Reads schedules, one a line as six numbers (skip_first wait warmup active repeat skip_first_wait), and prints the
// actions of units 0 to 59 as one letter each (N W R S). For comparing a whole grid with another implementation in one
// process.

#include <iostream>

#include "src/schedule/schedule.h"

int main() {
  std::ios::sync_with_stdio(false);
  marey::schedule::Schedule s;
  while (std::cin >> s.skip_first >> s.wait >> s.warmup >> s.active >> s.repeat >> s.skip_first_wait) {
    for (std::int64_t number = 0; number < 60; ++number)
      std::cout << "NWRS"[static_cast<int>(marey::schedule::action_of(s, number))];
    std::cout << '\n';
  }
}
